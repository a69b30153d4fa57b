# Three functions from three packages, so that each loads only what it needs. Callers use the alias `live`.

locals {
  functions = {
    api      = { memory_mb = var.memory_mb.api, timeout_seconds = 29 } # API Gateway waits at most 30 s
    delivery = { memory_mb = var.memory_mb.delivery, timeout_seconds = local.delivery_timeout_seconds }
    sweeper  = { memory_mb = var.memory_mb.sweeper, timeout_seconds = 55 } # it runs once a minute
  }

  environment = merge(
    {
      EVENTS_TABLE_NAME          = aws_dynamodb_table.events.name
      DELIVERY_QUEUE_URL         = aws_sqs_queue.delivery.url
      DELIVERY_DLQ_URL           = aws_sqs_queue.dead_letter.url
      RETRY_DELAYS               = join(",", var.retry_delays)
      MAX_RETRY_ATTEMPTS         = var.max_retry_attempts
      LOG_LEVEL                  = var.log_level
      DOORSTEP_ADMIN_KEY         = var.admin_key
      DOORSTEP_SECRET_KEY        = var.secret_key
      DOORSTEP_SERVICE_NAME      = var.service_name
      DOORSTEP_METRICS_NAMESPACE = var.metrics_namespace
      DOORSTEP_TIMEOUT_SECONDS   = min(30, var.timeout_seconds_max)
      DOORSTEP_LEASE_SECONDS     = var.timeout_seconds_max + 1 # a lease outlasts an attempt by a second
      DOORSTEP_PUBLIC_URL        = aws_apigatewayv2_api.api.api_endpoint
    },
    var.app == "" ? {} : { APP_MODULE = var.app },
    var.settings,
  )
}

resource "aws_cloudwatch_log_group" "function" {
  for_each = local.functions

  name              = "/aws/lambda/${var.name}-${each.key}"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.kms_key_arn
  tags              = var.tags
}

resource "aws_lambda_function" "function" {
  for_each = local.functions

  function_name    = "${var.name}-${each.key}"
  role             = aws_iam_role.function[each.key].arn
  filename         = "${var.packages}/${each.key}.zip"
  source_code_hash = filebase64sha256("${var.packages}/${each.key}.zip")
  handler          = "doorstep.aws.${each.key}.handler"
  runtime          = var.runtime
  architectures    = [var.architecture]
  memory_size      = each.value.memory_mb
  timeout          = each.value.timeout_seconds
  publish          = true
  tags             = var.tags

  environment {
    variables = local.environment
  }

  tracing_config {
    mode = "Active"
  }

  depends_on = [aws_cloudwatch_log_group.function, aws_iam_role_policy.function]
}

# With `stable_versions` and `canary_percent`, a share of the calls goes to the newest version.
resource "aws_lambda_alias" "live" {
  for_each = local.functions

  name             = "live"
  function_name    = aws_lambda_function.function[each.key].function_name
  function_version = lookup(var.stable_versions, each.key, aws_lambda_function.function[each.key].version)

  dynamic "routing_config" {
    for_each = local.canaries[each.key] ? [1] : []

    content {
      additional_version_weights = {
        (aws_lambda_function.function[each.key].version) = var.canary_percent / 100
      }
    }
  }
}

locals {
  canaries = {
    for name in keys(local.functions) : name => (
      var.canary_percent > 0
      && contains(keys(var.stable_versions), name)
      && lookup(var.stable_versions, name, "") != aws_lambda_function.function[name].version
    )
  }
}

# -- what starts the functions ---------------------------------------------------------------------------------------

resource "aws_lambda_event_source_mapping" "delivery" {
  event_source_arn        = aws_sqs_queue.delivery.arn
  function_name           = aws_lambda_alias.live["delivery"].arn
  batch_size              = var.batch_size
  function_response_types = ["ReportBatchItemFailures"]

  # A limit here leaves messages in the queue. Reserved concurrency would count each refused call as a receive, and five
  # of those would move a good message to the dead-letter queue.
  dynamic "scaling_config" {
    for_each = var.delivery_concurrency_max == null ? [] : [1]

    content {
      maximum_concurrency = var.delivery_concurrency_max
    }
  }
}

resource "aws_cloudwatch_event_rule" "sweeper" {
  name                = "${var.name}-sweeper"
  description         = "Starts the sweeper of ${var.name}"
  schedule_expression = var.sweep_every
  tags                = var.tags
}

resource "aws_cloudwatch_event_target" "sweeper" {
  rule = aws_cloudwatch_event_rule.sweeper.name
  arn  = aws_lambda_alias.live["sweeper"].arn

  # A missed run is made up for by the next one, a minute later.
  retry_policy {
    maximum_event_age_in_seconds = 60
    maximum_retry_attempts       = 0
  }
}

resource "aws_lambda_permission" "sweeper" {
  statement_id  = "schedule"
  action        = "lambda:InvokeFunction"
  function_name = aws_lambda_function.function["sweeper"].function_name
  qualifier     = aws_lambda_alias.live["sweeper"].name
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.sweeper.arn
}
