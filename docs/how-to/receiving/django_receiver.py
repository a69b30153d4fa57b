"""Receiving webhooks in Django, as a project in one file. Run it with: python django_receiver.py runserver 9000"""

import os
import sys

from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from doorstep.receiver import Once, SqliteLedger, StillHandling, Unverified, Webhook

webhook = Webhook(os.environ["WEBHOOK_SECRET"])
once = Once(SqliteLedger(os.environ.get("LEDGER", "handled.db")))


def handle(order: dict[str, object]) -> None:
    print("paid:", order, flush=True)


@csrf_exempt  # the signature says who is asking; there is no form and no cookie
@require_POST
def hook(request: HttpRequest) -> HttpResponse:
    try:
        received = webhook.verify(request.headers, request.body)
        with once(received.webhook_id) as first:
            if first:
                handle(received.json())
    except Unverified as error:
        return HttpResponse(str(error), status=401)
    except StillHandling as error:
        return HttpResponse(str(error), status=503)
    return HttpResponse(status=204)


urlpatterns = [path("hook", hook)]
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], SECRET_KEY=os.urandom(16).hex())
application = get_wsgi_application()

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
