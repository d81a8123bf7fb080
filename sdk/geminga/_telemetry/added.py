"""Adds the client's tracing to the interceptors of what it makes."""

from __future__ import annotations

from dataclasses import replace

from geminga.options import ClientOptions, ConsumerOptions, ProducerOptions


def traced_producer(client: ClientOptions, options: ProducerOptions) -> ProducerOptions:
    """The options with tracing as the last interceptor; unchanged without a `tracer_provider`."""
    if client.tracer_provider is None:
        return options
    from geminga._telemetry.tracing import TracingProducerInterceptor

    own = TracingProducerInterceptor(client.tracer_provider)
    return replace(options, interceptors=(*options.interceptors, own))


def traced_consumer(
    client: ClientOptions, options: ConsumerOptions, subscription_name: str
) -> ConsumerOptions:
    """The options with tracing as the first interceptor; unchanged without a `tracer_provider`."""
    if client.tracer_provider is None:
        return options
    from geminga._telemetry.tracing import TracingConsumerInterceptor

    own = TracingConsumerInterceptor(client.tracer_provider, subscription_name=subscription_name)
    return replace(options, interceptors=(own, *options.interceptors))
