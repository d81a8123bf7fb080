import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.HdrHistogram.Histogram;
import org.HdrHistogram.Recorder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TypedMessageBuilder;

/**
 * A load on a Pulsar server through Apache's Java client; prints one JSON line at the end.
 *
 * <p>Usage: {@code Load produce|consume|topics --url U --topic T [--key value]...}
 *
 * <ul>
 *   <li>produce: send for warmup-s and then measure for duration-s (or until count messages are
 *       acknowledged and consumed); with --subscriptions N, N consumers of the same topic beside;
 *       with --deliver-after-s S, messages are delayed and nobody waits for them;
 *       with --stamp 1, each carries its time, and tail_ms is exact to the microsecond.
 *   <li>consume: a new subscription reads count messages from the earliest one; with --again-s S,
 *       again and again for S seconds.
 *   <li>topics: count topics with one subscription each are created, in-flight at a time.
 * </ul>
 *
 * Latency runs from the call of sendAsync, blocked or not, to its completion; end-to-end latency
 * from the client's publish time to receipt by the listener.
 */
public final class Load {
    private final Map<String, String> options = new HashMap<>();
    private final AtomicBoolean measuring = new AtomicBoolean();
    private final AtomicBoolean stopping = new AtomicBoolean();
    private final AtomicLong acknowledged = new AtomicLong();
    private final AtomicLong failed = new AtomicLong();
    private final AtomicLong received = new AtomicLong();
    private final AtomicLong receivedBytes = new AtomicLong();
    private final Recorder publishMicros = new Recorder(TimeUnit.MINUTES.toMicros(2), 3);
    private final Recorder endToEndMillis = new Recorder(TimeUnit.MINUTES.toMillis(10), 3);
    private final Recorder tailMicros = new Recorder(TimeUnit.MINUTES.toMicros(2), 3);
    private volatile String firstError = "";
    private long ackEvery = -1;

    public static void main(String[] arguments) throws Exception {
        Load load = new Load();
        for (int i = 1; i + 1 < arguments.length; i += 2) {
            load.options.put(arguments[i].substring(2), arguments[i + 1]);
        }
        PulsarClient client =
                PulsarClient.builder()
                        .serviceUrl(load.text("url", "pulsar://127.0.0.1:6650"))
                        .ioThreads(1)
                        .listenerThreads(1)
                        .maxConcurrentLookupRequests(1000)
                        .operationTimeout(60, TimeUnit.SECONDS)
                        .statsInterval(0, TimeUnit.SECONDS)
                        .build();
        switch (arguments[0]) {
            case "produce" -> load.produce(client);
            case "consume" -> load.consume(client);
            case "topics" -> load.topics(client);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.out.flush();
        // Closing ten thousand handles one by one is not part of the measurement.
        Runtime.getRuntime().halt(load.failed.get() == 0 ? 0 : 1);
    }

    private void produce(PulsarClient client) throws Exception {
        String topic = text("topic", "load");
        int subscriptions = (int) number("subscriptions", 0);
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (int i = 0; i < subscriptions; i++) {
            consumers.add(subscribe(client, topic, "load-" + i, false));
        }
        if (number("keep", 0) != 0) {
            // A subscription that reads nothing keeps the backlog from being trimmed.
            subscribe(client, topic, "keep", true).close();
        }
        boolean batching = number("batching", 1) != 0;
        Producer<byte[]> producer =
                client.newProducer()
                        .topic(topic)
                        .enableBatching(batching)
                        .batchingMaxPublishDelay(number("batch-delay-us", 1000), TimeUnit.MICROSECONDS)
                        .batchingMaxMessages(Integer.MAX_VALUE)
                        .batchingMaxBytes((int) number("batch-bytes", 131072))
                        .maxPendingMessages((int) number("in-flight", 1000))
                        .blockIfQueueFull(true)
                        .sendTimeout(60, TimeUnit.SECONDS)
                        .create();
        Thread sender = new Thread(() -> sendAll(producer), "sender");
        sender.start();
        sleepSeconds(decimal("warmup-s", 3));
        publishMicros.reset();
        endToEndMillis.reset();
        tailMicros.reset();
        long acknowledgedBefore = acknowledged.get();
        long receivedBefore = received.get();
        long began = System.nanoTime();
        measuring.set(true);
        long count = number("count", 0);
        if (count > 0) {
            long all = number("deliver-after-s", 0) > 0 ? 0 : count * subscriptions;
            while ((acknowledged.get() < count || received.get() < all) && firstError.isEmpty()) {
                Thread.sleep(2);
            }
        } else {
            sleepSeconds(decimal("duration-s", 10));
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        long published = acknowledged.get() - acknowledgedBefore;
        long consumed = received.get() - receivedBefore;
        measuring.set(false);
        stopping.set(true);
        sender.join();
        producer.flush();
        Map<String, Object> result = new HashMap<>();
        result.put("seconds", seconds);
        result.put("published", published);
        result.put("publish_per_s", published / seconds);
        result.put("acknowledged_in_all", acknowledged.get());
        result.put("consume_per_s", consumed / seconds);
        result.put("consumed", consumed);
        percentiles(result, "publish_ms", publishMicros.getIntervalHistogram(), 1000.0);
        percentiles(result, "end_to_end_ms", endToEndMillis.getIntervalHistogram(), 1.0);
        percentiles(result, "tail_ms", tailMicros.getIntervalHistogram(), 1000.0);
        print(result);
    }

    /** The sender's loop: as fast as the in-flight limit allows, or paced in slices of 1 ms. */
    private void sendAll(Producer<byte[]> producer) {
        byte[] payload = new byte[(int) number("size", 1024)];
        new Random(1).nextBytes(payload);
        double rate = decimal("rate", 0);
        long count = number("count", 0);
        long delay = number("deliver-after-s", 0);
        boolean stamped = number("stamp", 0) != 0;
        long began = System.nanoTime();
        for (long sent = 0; !stopping.get() && (count == 0 || sent < count); sent++) {
            if (rate > 0) {
                long due = began + (long) (sent * 1e9 / rate);
                while (System.nanoTime() < due && !stopping.get()) {
                    LockSupport.parkNanos(200_000);
                }
            }
            long start = System.nanoTime();
            byte[] value = payload;
            if (stamped) {
                value = payload.clone();
                ByteBuffer.wrap(value).putLong(0, start);
            }
            TypedMessageBuilder<byte[]> message = producer.newMessage().value(value);
            if (delay > 0) {
                message.deliverAfter(delay, TimeUnit.SECONDS);
            }
            message.sendAsync().whenComplete((id, error) -> sendDone(start, error));
        }
        if (count > 0) {
            producer.flushAsync();
        }
    }

    private void sendDone(long start, Throwable error) {
        if (error != null) {
            failed.incrementAndGet();
            firstError = String.valueOf(error);
            stopping.set(true);
            return;
        }
        acknowledged.incrementAndGet();
        if (measuring.get()) {
            publishMicros.recordValue(Math.min((System.nanoTime() - start) / 1000, 119_000_000));
        }
    }

    private Consumer<byte[]> subscribe(PulsarClient client, String topic, String name, boolean earliest)
            throws Exception {
        return client.newConsumer()
                .topic(topic)
                .subscriptionName(name)
                .subscriptionType(SubscriptionType.valueOf(text("type", "Exclusive")))
                .subscriptionInitialPosition(
                        earliest
                                ? SubscriptionInitialPosition.Earliest
                                : SubscriptionInitialPosition.Latest)
                .receiverQueueSize((int) number("receiver-queue", 1000))
                .messageListener(this::onMessage)
                .subscribe();
    }

    private void onMessage(Consumer<byte[]> consumer, Message<byte[]> message) {
        long number = received.incrementAndGet();
        receivedBytes.addAndGet(message.size());
        if (measuring.get()) {
            long delay = System.currentTimeMillis() - message.getPublishTime();
            endToEndMillis.recordValue(Math.max(0, Math.min(delay, 599_000)));
            if (number("stamp", 0) != 0) {
                long sent = ByteBuffer.wrap(message.getValue()).getLong(0);
                tailMicros.recordValue(Math.min((System.nanoTime() - sent) / 1000, 119_000_000));
            }
        }
        long ackEvery = ackEvery();
        if (ackEvery <= 1) {
            consumer.acknowledgeAsync(message);
        } else if (number % ackEvery == 0) {
            consumer.acknowledgeCumulativeAsync(message);
        }
    }

    /** 1: each message by itself; more: cumulatively, that often (one consumer only). */
    private long ackEvery() {
        if (ackEvery < 0) {
            ackEvery = number("ack-every", 1);
        }
        return ackEvery;
    }

    private void consume(PulsarClient client) throws Exception {
        long count = number("count", 1000);
        long began = System.nanoTime();
        Consumer<byte[]> consumer =
                subscribe(client, text("topic", "load"), text("subscription", "catch-up"), true);
        long again = number("again-s", 0);
        for (long end = count; System.nanoTime() < began + TimeUnit.SECONDS.toNanos(again); ) {
            if (received.get() >= end) {
                consumer.seek(MessageId.earliest);
                end = received.get() + count;
            }
            Thread.sleep(2);
        }
        if (again > 0) {
            count = received.get();
        }
        long deadline = began + TimeUnit.SECONDS.toNanos(number("timeout-s", 300));
        while (received.get() < count) {
            if (System.nanoTime() > deadline) {
                failed.incrementAndGet();
                firstError = "only " + received.get() + " of " + count + " messages in time";
                break;
            }
            Thread.sleep(2);
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        Map<String, Object> result = new HashMap<>();
        result.put("seconds", seconds);
        result.put("consumed", received.get());
        result.put("consume_per_s", received.get() / seconds);
        result.put("consume_mb_per_s", receivedBytes.get() / seconds / 1e6);
        print(result);
    }

    private void topics(PulsarClient client) throws Exception {
        int count = (int) number("count", 1000);
        String prefix = text("topic", "persistent://public/default/many");
        Semaphore places = new Semaphore((int) number("in-flight", 32));
        CountDownLatch open = new CountDownLatch(count);
        long began = System.nanoTime();
        for (int i = 0; i < count; i++) {
            places.acquire();
            CompletableFuture<Consumer<byte[]>> subscribed =
                    client.newConsumer()
                            .topic(prefix + "-" + i)
                            .subscriptionName("s")
                            .receiverQueueSize(1)
                            .subscribeAsync();
            subscribed
                    .thenCompose(Consumer::closeAsync)
                    .whenComplete(
                            (nothing, error) -> {
                                if (error != null) {
                                    failed.incrementAndGet();
                                    firstError = String.valueOf(error);
                                }
                                places.release();
                                open.countDown();
                            });
        }
        open.await();
        double seconds = (System.nanoTime() - began) / 1e9;
        Map<String, Object> result = new HashMap<>();
        result.put("seconds", seconds);
        result.put("topics", count);
        result.put("topics_per_s", count / seconds);
        print(result);
    }

    private static void percentiles(
            Map<String, Object> result, String name, Histogram values, double divisor) {
        if (values.getTotalCount() == 0) {
            return;
        }
        result.put(name + "_p50", values.getValueAtPercentile(50) / divisor);
        result.put(name + "_p95", values.getValueAtPercentile(95) / divisor);
        result.put(name + "_p99", values.getValueAtPercentile(99) / divisor);
        result.put(name + "_p999", values.getValueAtPercentile(99.9) / divisor);
        result.put(name + "_max", values.getMaxValue() / divisor);
    }

    private void print(Map<String, Object> result) {
        StringBuilder line = new StringBuilder("{");
        result.forEach(
                (key, value) ->
                        line.append('"')
                                .append(key)
                                .append("\": ")
                                .append(
                                        value instanceof Double
                                                ? String.format(Locale.ROOT, "%.4f", value)
                                                : value.toString())
                                .append(", "));
        line.append("\"failed\": ").append(failed.get()).append(", \"error\": \"");
        line.append(firstError.replaceAll("[^ -!#-\\[\\]-~]", " ")).append("\"}");
        System.out.println(line);
    }

    private String text(String name, String otherwise) {
        return options.getOrDefault(name, otherwise);
    }

    private long number(String name, long otherwise) {
        return Long.parseLong(options.getOrDefault(name, Long.toString(otherwise)));
    }

    private double decimal(String name, double otherwise) {
        return Double.parseDouble(options.getOrDefault(name, Double.toString(otherwise)));
    }

    private static void sleepSeconds(double seconds) throws InterruptedException {
        Thread.sleep((long) (seconds * 1000));
    }
}
