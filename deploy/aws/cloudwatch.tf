# The dashboard and the alarms. The functions write the metrics into their logs; see docs/how-to/aws.md.

data "aws_region" "current" {}

locals {
  region  = data.aws_region.current.name
  service = ["service", var.service_name]

  metric = {
    for name in [
      "EventsCreated", "EventsDelivered", "EventsFailed", "EventsQueued", "EventsReceived", "FailedPercent",
      "TimeToDelivery", "RetryAttempts",
    ] : name => concat([var.metrics_namespace, name], local.service)
  }
  queue_metric = {
    for name in ["Visible", "NotVisible", "Delayed"] : name => [
      "AWS/SQS", "ApproximateNumberOfMessages${name}", "QueueName", aws_sqs_queue.delivery.name,
    ]
  }
}

resource "aws_cloudwatch_dashboard" "doorstep" {
  dashboard_name = var.name

  dashboard_body = jsonencode({
    start          = "-PT3H"
    periodOverride = "inherit"
    widgets = [for position, widget in local.widgets : {
      type       = "metric"
      x          = 8 * (position % 3)
      y          = 6 * floor(position / 3)
      width      = position == 6 ? 24 : 8
      height     = 6
      properties = merge({ region = local.region, period = 60 }, widget)
    }]
  })
}

locals {
  # An event adds 1 to `EventsReceived` or `EventsQueued` when it enters that status, and takes 1 away when it leaves it.
  # If more left than came in the time shown, nothing is shown for it.
  widgets = [
    {
      title                = "Events by status"
      view                 = "pie"
      stat                 = "Sum"
      setPeriodToTimeRange = true
      metrics = [
        concat(local.metric.EventsReceived, [{ id = "r", visible = false }]),
        concat(local.metric.EventsQueued, [{ id = "q", visible = false }]),
        [{ expression = "IF(r > 0, r, 0)", label = "received", id = "received" }],
        [{ expression = "IF(q > 0, q, 0)", label = "queued", id = "queued" }],
        concat(local.metric.EventsDelivered, [{ label = "delivered" }]),
        concat(local.metric.EventsFailed, [{ label = "failed" }]),
      ]
    },
    {
      title = "Events per minute"
      view  = "timeSeries"
      stat  = "Sum"
      metrics = [
        concat(local.metric.EventsCreated, [{ label = "created" }]),
        concat(local.metric.EventsDelivered, [{ label = "delivered" }]),
        concat(local.metric.EventsFailed, [{ label = "failed" }]),
      ]
    },
    {
      title                = "Success rate"
      view                 = "gauge"
      stat                 = "Average"
      setPeriodToTimeRange = true
      yAxis                = { left = { min = 0, max = 100 } }
      metrics = [
        concat(local.metric.FailedPercent, [{ id = "failed", visible = false }]),
        [{ expression = "100 - failed", label = "% delivered", id = "delivered" }],
      ]
    },
    {
      title                = "Retry attempts"
      view                 = "bar"
      setPeriodToTimeRange = true
      metrics = [
        for count in range(var.max_retry_attempts + 1) : concat(local.metric.RetryAttempts, [{
          label = tostring(count)
          # A trimmed count: how many values lie between the two bounds.
          stat = count == var.max_retry_attempts ? "TC(${count - 0.5}:)" : (
            count == 0 ? "TC(:0.5)" : "TC(${count - 0.5}:${count + 0.5})"
          )
        }])
      ]
    },
    {
      title   = "Time to delivery"
      view    = "timeSeries"
      metrics = [for stat in ["p50", "p95", "p99"] : concat(local.metric.TimeToDelivery, [{ label = stat, stat = stat }])]
      yAxis   = { left = { min = 0, label = "seconds", showUnits = false } }
    },
    {
      title   = "Failed per minute, 24 hours"
      view    = "timeSeries"
      stat    = "Sum"
      start   = "-PT24H"
      end     = "P0D"
      metrics = [concat(local.metric.EventsFailed, [{ label = "failed" }])]
    },
    {
      title   = "Queue depth"
      view    = "timeSeries"
      stat    = "Maximum"
      stacked = true
      metrics = [
        concat(local.queue_metric.Visible, [{ label = "waiting" }]),
        concat(local.queue_metric.NotVisible, [{ label = "in flight" }]),
        concat(local.queue_metric.Delayed, [{ label = "delayed" }]),
      ]
    },
  ]
}

# -- alarms ----------------------------------------------------------------------------------------------------------

resource "aws_sns_topic" "alarms" {
  name              = "${var.name}-alarms"
  kms_master_key_id = var.kms_key_arn
  tags              = var.tags
}

resource "aws_sns_topic_subscription" "email" {
  for_each = toset(var.alarm_emails)

  topic_arn = aws_sns_topic.alarms.arn
  protocol  = "email"
  endpoint  = each.value
}

# The value of `FailedPercent` is 100 for an event that failed and 0 for one that was delivered.
resource "aws_cloudwatch_metric_alarm" "failed" {
  alarm_name          = "${var.name}-failed"
  alarm_description   = "More than 5 % of the events that ended in five minutes have failed."
  namespace           = var.metrics_namespace
  metric_name         = "FailedPercent"
  dimensions          = { service = var.service_name }
  statistic           = "Average"
  period              = 300
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = 5
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  ok_actions          = [aws_sns_topic.alarms.arn]
  tags                = var.tags
}

resource "aws_cloudwatch_metric_alarm" "message_age" {
  alarm_name          = "${var.name}-message-age"
  alarm_description   = "A message has been in the delivery queue for more than an hour."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateAgeOfOldestMessage"
  dimensions          = { QueueName = aws_sqs_queue.delivery.name }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = 3600
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  ok_actions          = [aws_sns_topic.alarms.arn]
  tags                = var.tags
}

resource "aws_cloudwatch_metric_alarm" "dead_letter_queue" {
  alarm_name          = "${var.name}-dead-letter-queue"
  alarm_description   = "A message that the delivery function could not process is in the dead-letter queue."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateNumberOfMessagesVisible"
  dimensions          = { QueueName = aws_sqs_queue.dead_letter.name }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  ok_actions          = [aws_sns_topic.alarms.arn]
  tags                = var.tags
}

resource "aws_cloudwatch_metric_alarm" "status_latency" {
  alarm_name          = "${var.name}-status-latency"
  alarm_description   = "The 95th percentile of status queries has been slower than ${var.status_p95_ms_max} ms for five minutes."
  namespace           = var.metrics_namespace
  metric_name         = "StatusQueryLatency"
  dimensions          = { service = var.service_name }
  extended_statistic  = "p95"
  period              = 60
  evaluation_periods  = 5
  comparison_operator = "GreaterThanThreshold"
  threshold           = var.status_p95_ms_max
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  ok_actions          = [aws_sns_topic.alarms.arn]
  tags                = var.tags
}
