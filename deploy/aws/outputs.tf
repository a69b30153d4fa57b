output "api_url" {
  description = "The address of the API and the console."
  value       = aws_apigatewayv2_api.api.api_endpoint
}

output "table_name" {
  value = aws_dynamodb_table.events.name
}

output "delivery_queue_url" {
  value = aws_sqs_queue.delivery.url
}

output "dead_letter_queue_url" {
  value = aws_sqs_queue.dead_letter.url
}

output "database_url" {
  description = "For `doorstep serve --database` and `doorstep worker --database`, which can run beside the functions."
  value       = "dynamodb://${aws_dynamodb_table.events.name}?region=${local.region}&queue=${aws_sqs_queue.delivery.name}"
}

output "function_names" {
  value = { for name, function in aws_lambda_function.function : name => function.function_name }
}

output "function_versions" {
  description = "The newest version of each function; pass the ones that work as `stable_versions` before the next release."
  value       = { for name, function in aws_lambda_function.function : name => function.version }
}

output "log_groups" {
  value = { for name, group in aws_cloudwatch_log_group.function : name => group.name }
}

output "alarm_topic_arn" {
  value = aws_sns_topic.alarms.arn
}

output "dashboard_url" {
  value = "https://${local.region}.console.aws.amazon.com/cloudwatch/home?region=${local.region}#dashboards/dashboard/${aws_cloudwatch_dashboard.doorstep.dashboard_name}"
}
