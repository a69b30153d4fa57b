# One table: the queue, and the truth about every event. src/doorstep/stores/dynamodb/tables.py declares the same keys and
# indexes; a test compares the two.

locals {
  indexes = {
    StatusIndex = { partition_key = "status_owner", sort_key = "status_at" }
    DueIndex    = { partition_key = "due_shard", sort_key = "due_order" }
    ListIndex   = { partition_key = "list_key", sort_key = "list_order" }
    WorkIndex   = { partition_key = "work_key", sort_key = "work_order" }
  }

  key_attributes = concat(
    ["pk", "sk"],
    flatten([for index in local.indexes : [index.partition_key, index.sort_key]]),
  )
}

resource "aws_dynamodb_table" "events" {
  name                        = "${var.name}-events"
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "pk"
  range_key                   = "sk"
  deletion_protection_enabled = var.deletion_protection
  tags                        = var.tags

  dynamic "attribute" {
    for_each = toset(local.key_attributes)

    content {
      name = attribute.value
      type = "S"
    }
  }

  dynamic "global_secondary_index" {
    for_each = local.indexes

    content {
      name            = global_secondary_index.key
      hash_key        = global_secondary_index.value.partition_key
      range_key       = global_secondary_index.value.sort_key
      projection_type = "KEYS_ONLY"
    }
  }

  ttl {
    attribute_name = "expires_at"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  # DynamoDB encrypts every table. Without a key of yours, it uses one of its own that costs nothing.
  dynamic "server_side_encryption" {
    for_each = var.kms_key_arn == null ? [] : [var.kms_key_arn]

    content {
      enabled     = true
      kms_key_arn = server_side_encryption.value
    }
  }
}
