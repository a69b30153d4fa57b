# A message is a hint: the table says what is due. So a message may be lost, doubled, early or late.

locals {
  # An attempt can take as long as an endpoint may set, and its result must still be written.
  delivery_timeout_seconds = ceil(var.timeout_seconds_max) + 15

  # A message stays hidden longer than the function that has it can run, so that it is not delivered twice meanwhile.
  visibility_seconds = 2 * local.delivery_timeout_seconds
}

resource "aws_sqs_queue" "delivery" {
  name                       = "${var.name}-delivery"
  visibility_timeout_seconds = local.visibility_seconds
  message_retention_seconds  = 14 * 24 * 3600
  receive_wait_time_seconds  = 20
  sqs_managed_sse_enabled    = var.kms_key_arn == null ? true : null
  kms_master_key_id          = var.kms_key_arn
  tags                       = var.tags

  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letter.arn
    maxReceiveCount     = 5
  })
}

# For messages that our own functions cannot process: a defect, never a receiver's failure. Those are in the table.
resource "aws_sqs_queue" "dead_letter" {
  name                      = "${var.name}-delivery-dlq"
  message_retention_seconds = 14 * 24 * 3600
  sqs_managed_sse_enabled   = var.kms_key_arn == null ? true : null
  kms_master_key_id         = var.kms_key_arn
  tags                      = var.tags
}

resource "aws_sqs_queue_redrive_allow_policy" "dead_letter" {
  queue_url = aws_sqs_queue.dead_letter.id

  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.delivery.arn]
  })
}
