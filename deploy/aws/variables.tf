variable "name" {
  description = "Prefix of every resource: the table, the queues, the functions, the dashboard and the alarms."
  type        = string
  default     = "doorstep"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,30}$", var.name))
    error_message = "name must be 2 to 31 lower-case letters, digits and hyphens, beginning with a letter."
  }
}

variable "packages" {
  description = "The folder with api.zip, delivery.zip and sweeper.zip, as `make aws-package` writes them."
  type        = string
}

variable "runtime" {
  description = "The Python of the functions. It must be the one that the packages were built for."
  type        = string
  default     = "python3.13"
}

variable "architecture" {
  description = "The processor of the functions: x86_64 or arm64. It must be the one that the packages were built for."
  type        = string
  default     = "x86_64"

  validation {
    condition     = contains(["x86_64", "arm64"], var.architecture)
    error_message = "architecture must be x86_64 or arm64."
  }
}

variable "app" {
  description = "The program that the functions run, as module:name, such as shop.events:doorstep. Empty: Doorstep alone."
  type        = string
  default     = ""
}

variable "admin_key" {
  description = "The first admin key: 8 to 200 visible ASCII characters."
  type        = string
  sensitive   = true
}

variable "secret_key" {
  description = "Encrypts the secrets of endpoints at rest: 32 random bytes in URL-safe base64."
  type        = string
  sensitive   = true
}

variable "settings" {
  description = "More settings of Doorstep for all functions, such as { DOORSTEP_RETENTION_DAYS = \"14\" }."
  type        = map(string)
  default     = {}
}

variable "service_name" {
  description = "The field `service` of every log line, and the dimension of every metric."
  type        = string
  default     = "doorstep"
}

variable "metrics_namespace" {
  description = "The CloudWatch namespace of the metrics."
  type        = string
  default     = "Doorstep"
}

variable "retry_delays" {
  description = "Seconds before each retry."
  type        = list(number)
  default     = [60, 300, 900]
}

variable "max_retry_attempts" {
  description = "The most retries that a delivery can have."
  type        = number
  default     = 3
}

variable "log_level" {
  description = "debug, info, warning or error."
  type        = string
  default     = "info"
}

variable "log_retention_days" {
  description = "How long CloudWatch keeps the logs."
  type        = number
  default     = 30
}

variable "timeout_seconds_max" {
  description = "The longest timeout that an endpoint may set for an attempt. The timeout of the delivery function and the visibility of its messages follow from it."
  type        = number
  default     = 30

  validation {
    condition     = var.timeout_seconds_max >= 1 && var.timeout_seconds_max <= 300
    error_message = "timeout_seconds_max must be 1 to 300."
  }
}

variable "memory_mb" {
  description = "Memory of each function in MB. Processor time grows with it: 1,769 MB is one whole processor."
  type        = object({ api = number, delivery = number, sweeper = number })
  default     = { api = 1024, delivery = 1024, sweeper = 512 }
}

variable "batch_size" {
  description = "The most messages that one call of the delivery function gets."
  type        = number
  default     = 10
}

variable "delivery_concurrency_max" {
  description = "The most calls of the delivery function at the same time, 2 to 1000; null sets no limit but the account's."
  type        = number
  default     = null
}

variable "sweep_every" {
  description = "How often the sweeper runs, as an EventBridge rate."
  type        = string
  default     = "rate(1 minute)"
}

variable "deletion_protection" {
  description = "Refuse to delete the table."
  type        = bool
  default     = true
}

variable "kms_key_arn" {
  description = "Your own KMS key for the table, the queues, the topic and the logs. Null: the keys of AWS, which cost nothing."
  type        = string
  default     = null
}

variable "alarm_emails" {
  description = "Addresses that get the alarms. Each must confirm its subscription."
  type        = list(string)
  default     = []
}

variable "status_p95_ms_max" {
  description = "An alarm is raised when the 95th percentile of status queries is slower than this, in milliseconds."
  type        = number
  default     = 50
}

variable "stable_versions" {
  description = "The version of each function that the alias `live` stays on, such as { api = \"7\" }. A function that is left out serves its newest version."
  type        = map(string)
  default     = {}
}

variable "canary_percent" {
  description = "The share of calls that go to the newest version of a function that `stable_versions` names; 0 to 100."
  type        = number
  default     = 0

  validation {
    condition     = var.canary_percent >= 0 && var.canary_percent <= 100
    error_message = "canary_percent must be 0 to 100."
  }
}

variable "tags" {
  description = "Tags of every resource that can have them."
  type        = map(string)
  default     = {}
}
