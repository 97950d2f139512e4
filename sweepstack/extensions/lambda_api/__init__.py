"""The adapter for Lambda's Cloud API."""

from sweepstack.platforms.common.keys import Key

KEY = Key("lambdaApiKey", "LAMBDA_API_KEY", "Lambda")
