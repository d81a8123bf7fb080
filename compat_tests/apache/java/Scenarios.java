import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionType;

/** Subscriptions, batches, compression, acknowledgements. */
final class Scenarios {
    private final Exerciser on;

    Scenarios(Exerciser on) {
        this.on = on;
    }

    void register() {
        on.add("exclusive", this::exclusive);
        on.add("failover", this::failover);
        on.add("shared", this::shared);
        on.add("key_shared", this::keyShared);
        on.add("batching", this::batching);
        for (CompressionType type : CompressionType.values()) {
            on.add("compression_" + type.name().toLowerCase(), () -> compression(type));
        }
        on.add("nack", this::nack);
        on.add("cumulative_ack", this::cumulativeAck);
        on.add("batch_index_ack", this::batchIndexAck);
        on.add("ack_with_receipt", this::ackWithReceipt);
        on.add("redeliver_all", this::redeliverAll);
        on.add("properties_and_keys", this::propertiesAndKeys);
        on.add("receipt_positions", this::receiptPositions);
    }

    private void exclusive() throws Exception {
        String topic = on.topic("exclusive");
        try (Consumer<byte[]> consumer = on.consumer(topic, SubscriptionType.Exclusive).subscribe();
                Producer<byte[]> producer = on.producer(topic).create()) {
            Exerciser.refused(
                    PulsarClientException.ConsumerBusyException.class,
                    () -> on.consumer(topic, SubscriptionType.Exclusive).subscribe());
            Exerciser.send(producer, "m", 50);
            for (int i = 0; i < 50; i++) {
                Message<byte[]> message = Exerciser.next(consumer);
                Exerciser.same("m" + i, Exerciser.text(message));
                consumer.acknowledge(message);
            }
            Exerciser.nothingMore(consumer);
        }
        try (Consumer<byte[]> again = on.consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            Exerciser.nothingMore(again);
        }
    }

    private void failover() throws Exception {
        String topic = on.topic("failover");
        Consumer<byte[]> first =
                on.consumer(topic, SubscriptionType.Failover).consumerName("a").subscribe();
        Consumer<byte[]> second =
                on.consumer(topic, SubscriptionType.Failover).consumerName("b").subscribe();
        // Apache's broker may choose another one a second after one has joined.
        Thread.sleep(2000);
        try (Producer<byte[]> producer = on.producer(topic).create()) {
            Exerciser.send(producer, "m", 20);
            // Which of the two is active follows from a hash of the topic's name.
            Map<Consumer<byte[]>, List<Message<byte[]>>> drained =
                    Exerciser.drain(List.of(first, second), 20);
            Consumer<byte[]> active = drained.get(first).isEmpty() ? second : first;
            Consumer<byte[]> waiting = active == first ? second : first;
            List<Message<byte[]>> got = drained.get(active);
            Exerciser.same(Exerciser.numbered("m", 0, 20), Exerciser.texts(got));
            active.acknowledgeCumulative(got.get(9));
            active.close();
            List<Message<byte[]>> rest = new ArrayList<>();
            for (int tries = 0; rest.size() < 10 && tries < 20; tries++) {
                Message<byte[]> message = waiting.receive(10, TimeUnit.SECONDS);
                if (message != null) {
                    rest.add(message);
                } else {
                    // Apache's broker waits now and then until something new is written.
                    producer.send(Exerciser.bytes("new"));
                }
            }
            Exerciser.same(Exerciser.numbered("m", 10, 20), Exerciser.texts(rest));
            waiting.close();
        }
    }

    private void shared() throws Exception {
        String topic = on.topic("shared");
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            consumers.add(on.consumer(topic, SubscriptionType.Shared).receiverQueueSize(10).subscribe());
        }
        try (Producer<byte[]> producer = on.producer(topic).create()) {
            Exerciser.send(producer, "m", 90);
            Map<Consumer<byte[]>, List<Message<byte[]>>> got = new HashMap<>();
            // Each consumer's own queue is at most 10, so that all three must get their turns.
            got.putAll(Exerciser.drain(consumers, 90));
            List<String> all = new ArrayList<>();
            for (Map.Entry<Consumer<byte[]>, List<Message<byte[]>>> each : got.entrySet()) {
                Exerciser.check(!each.getValue().isEmpty(), "a consumer got nothing");
                all.addAll(Exerciser.texts(each.getValue()));
            }
            Exerciser.sameSet(Exerciser.numbered("m", 0, 90), all);
            // What the first one leaves unacknowledged goes to the others when it closes.
            int left = got.get(consumers.get(0)).size();
            for (int i = 1; i < 3; i++) {
                for (Message<byte[]> message : got.get(consumers.get(i))) {
                    consumers.get(i).acknowledge(message);
                }
            }
            consumers.get(0).close();
            Exerciser.drain(consumers.subList(1, 3), left);
        }
        for (Consumer<byte[]> consumer : consumers) {
            consumer.close();
        }
    }

    private void keyShared() throws Exception {
        String topic = on.topic("key-shared");
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            consumers.add(on.consumer(topic, SubscriptionType.Key_Shared).subscribe());
        }
        try (Producer<byte[]> producer = on.producer(topic).create()) {
            for (int i = 0; i < 120; i++) {
                producer.newMessage().key("k" + i % 30).value(Exerciser.bytes("m" + i)).sendAsync();
            }
            producer.flush();
            Map<String, Consumer<byte[]>> owners = new HashMap<>();
            Map<String, Integer> last = new HashMap<>();
            int busy = 0;
            for (Map.Entry<Consumer<byte[]>, List<Message<byte[]>>> each :
                    Exerciser.drain(consumers, 120).entrySet()) {
                busy += each.getValue().isEmpty() ? 0 : 1;
                for (Message<byte[]> message : each.getValue()) {
                    Consumer<byte[]> owner = owners.putIfAbsent(message.getKey(), each.getKey());
                    Exerciser.check(owner == null || owner == each.getKey(), "a key had two owners");
                    int number = Integer.parseInt(Exerciser.text(message).substring(1));
                    Integer before = last.put(message.getKey(), number);
                    Exerciser.check(before == null || before < number, "a key's order broke");
                    each.getKey().acknowledge(message);
                }
            }
            Exerciser.same(30, owners.size());
            Exerciser.check(busy >= 2, "only " + busy + " consumer got keys");
        }
        for (Consumer<byte[]> consumer : consumers) {
            consumer.close();
        }
    }

    private void batching() throws Exception {
        String topic = on.topic("batching");
        try (Consumer<byte[]> consumer = on.consumer(topic, SubscriptionType.Exclusive).subscribe();
                Producer<byte[]> producer = on.batching(topic, 50).create()) {
            Exerciser.send(producer, "m", 100);
            List<Message<byte[]>> got = Exerciser.next(consumer, 100);
            Exerciser.same(Exerciser.numbered("m", 0, 100), Exerciser.texts(got));
            MessageIdAdv tenth = (MessageIdAdv) got.get(9).getMessageId();
            Exerciser.same(9, tenth.getBatchIndex());
            Exerciser.same(50, tenth.getBatchSize());
            MessageIdAdv first = (MessageIdAdv) got.get(0).getMessageId();
            Exerciser.same(first.getEntryId(), tenth.getEntryId());
            for (Message<byte[]> message : got) {
                consumer.acknowledge(message);
            }
        }
        try (Consumer<byte[]> again = on.consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            Exerciser.nothingMore(again);
        }
    }

    private void compression(CompressionType type) throws Exception {
        String topic = on.topic("compression");
        String text = "geminga ".repeat(500);
        try (Consumer<byte[]> consumer = on.consumer(topic, SubscriptionType.Exclusive).subscribe();
                Producer<byte[]> single = on.producer(topic).compressionType(type).create();
                Producer<byte[]> batch = on.batching(topic, 10).compressionType(type).create()) {
            Exerciser.send(single, text, 5);
            Exerciser.send(batch, text, 10);
            List<String> expected = Exerciser.numbered(text, 0, 5);
            expected.addAll(Exerciser.numbered(text, 0, 10));
            Exerciser.same(expected, Exerciser.texts(Exerciser.next(consumer, 15)));
        }
    }

    private void nack() throws Exception {
        String topic = on.topic("nack");
        try (Consumer<byte[]> consumer =
                        on.consumer(topic, SubscriptionType.Shared)
                                .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                                .subscribe();
                Producer<byte[]> producer = on.producer(topic).create()) {
            Exerciser.send(producer, "m", 10);
            for (Message<byte[]> message : Exerciser.next(consumer, 10)) {
                Exerciser.same(0, message.getRedeliveryCount());
                if (Exerciser.text(message).compareTo("m5") >= 0) {
                    consumer.negativeAcknowledge(message);
                } else {
                    consumer.acknowledge(message);
                }
            }
            List<Message<byte[]>> again = Exerciser.next(consumer, 5);
            Exerciser.sameSet(Exerciser.numbered("m", 5, 10), Exerciser.texts(again));
            for (Message<byte[]> message : again) {
                Exerciser.same(1, message.getRedeliveryCount());
                consumer.acknowledge(message);
            }
            Exerciser.nothingMore(consumer);
        }
    }

    private void cumulativeAck() throws Exception {
        String topic = on.topic("cumulative");
        try (Producer<byte[]> producer = on.producer(topic).create()) {
            try (Consumer<byte[]> consumer = on.consumer(topic, SubscriptionType.Exclusive).subscribe()) {
                Exerciser.send(producer, "m", 20);
                consumer.acknowledgeCumulative(Exerciser.next(consumer, 15).get(14));
            }
            try (Consumer<byte[]> again = on.consumer(topic, SubscriptionType.Exclusive).subscribe()) {
                Exerciser.same(
                        Exerciser.numbered("m", 15, 20), Exerciser.texts(Exerciser.next(again, 5)));
            }
        }
    }

    private void batchIndexAck() throws Exception {
        String topic = on.topic("batch-index");
        try (Producer<byte[]> producer = on.batching(topic, 10).create()) {
            try (Consumer<byte[]> consumer =
                    on.consumer(topic, SubscriptionType.Shared)
                            .enableBatchIndexAcknowledgment(true)
                            .subscribe()) {
                Exerciser.send(producer, "m", 10);
                List<Message<byte[]>> got = Exerciser.next(consumer, 10);
                for (int i = 0; i < 10; i += 2) {
                    consumer.acknowledge(got.get(i));
                }
            }
            try (Consumer<byte[]> again =
                    on.consumer(topic, SubscriptionType.Shared)
                            .enableBatchIndexAcknowledgment(true)
                            .subscribe()) {
                Exerciser.same(
                        List.of("m1", "m3", "m5", "m7", "m9"),
                        Exerciser.texts(Exerciser.next(again, 5)));
                Exerciser.nothingMore(again);
            }
        }
    }

    private void ackWithReceipt() throws Exception {
        String topic = on.topic("ack-receipt");
        try (Consumer<byte[]> consumer =
                        on.consumer(topic, SubscriptionType.Shared).isAckReceiptEnabled(true).subscribe();
                Producer<byte[]> producer = on.producer(topic).create()) {
            Exerciser.send(producer, "m", 5);
            for (Message<byte[]> message : Exerciser.next(consumer, 5)) {
                consumer.acknowledgeAsync(message).get(Exerciser.WAIT_S, TimeUnit.SECONDS);
            }
        }
    }

    private void redeliverAll() throws Exception {
        String topic = on.topic("redeliver");
        for (SubscriptionType type : List.of(SubscriptionType.Exclusive, SubscriptionType.Shared)) {
            try (Consumer<byte[]> consumer =
                            on.consumer(topic, type)
                                    .subscriptionName("s-" + type)
                                    // They must be at the broker before it is asked to send again.
                                    .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS)
                                    .subscribe();
                    Producer<byte[]> producer = on.producer(topic).create()) {
                Exerciser.send(producer, type + "-", 10);
                List<Message<byte[]>> got = Exerciser.next(consumer, type == SubscriptionType.Shared ? 20 : 10);
                consumer.acknowledge(got.get(0));
                consumer.acknowledge(got.get(2));
                consumer.redeliverUnacknowledgedMessages();
                List<String> expected = Exerciser.texts(got);
                expected.remove(2);
                expected.remove(0);
                Exerciser.sameSet(
                        expected, Exerciser.texts(Exerciser.next(consumer, expected.size())));
                Exerciser.nothingMore(consumer);
            }
        }
    }

    private void propertiesAndKeys() throws Exception {
        String topic = on.topic("properties");
        try (Consumer<byte[]> consumer = on.consumer(topic, SubscriptionType.Exclusive).subscribe();
                Producer<byte[]> producer =
                        on.producer(topic).producerName("named-" + topic.hashCode()).create()) {
            MessageId sent =
                    producer.newMessage()
                            .key("the key")
                            .orderingKey(Exerciser.bytes("order"))
                            .eventTime(1_234_567)
                            .property("colour", "blue")
                            .property("empty", "")
                            .sequenceId(77)
                            .value(Exerciser.bytes("m"))
                            .send();
            Message<byte[]> got = Exerciser.next(consumer);
            Exerciser.same("the key", got.getKey());
            Exerciser.same("order", new String(got.getOrderingKey()));
            Exerciser.same(1_234_567L, got.getEventTime());
            Exerciser.same(Map.of("colour", "blue", "empty", ""), got.getProperties());
            Exerciser.same(77L, got.getSequenceId());
            Exerciser.same(producer.getProducerName(), got.getProducerName());
            Exerciser.same(sent.toString(), got.getMessageId().toString());
        }
    }

    private void receiptPositions() throws Exception {
        String topic = on.topic("receipts");
        try (Producer<byte[]> producer = on.producer(topic).create()) {
            MessageIdAdv before = (MessageIdAdv) producer.send(Exerciser.bytes("first"));
            for (int i = 0; i < 20; i++) {
                MessageIdAdv id = (MessageIdAdv) producer.send(Exerciser.bytes("m"));
                Exerciser.same(before.getLedgerId(), id.getLedgerId());
                Exerciser.same(before.getEntryId() + 1, id.getEntryId());
                Exerciser.same(-1, id.getPartitionIndex());
                before = id;
            }
            Exerciser.same(20L, producer.getLastSequenceId());
        }
    }
}
