import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.RegexSubscriptionMode;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/** Positions, readers, topics of other kinds, producer access, schemas, large messages. */
final class MoreScenarios {
    private final Exerciser on;

    MoreScenarios(Exerciser on) {
        this.on = on;
    }

    void register() {
        on.add("seek_by_id", this::seekById);
        on.add("seek_by_time", this::seekByTime);
        on.add("seek_earliest_latest", this::seekEnds);
        on.add("reader", this::reader);
        on.add("last_message_id", this::lastMessageId);
        on.add("partitioned", this::partitioned);
        on.add("non_persistent", this::nonPersistent);
        on.add("several_topics", this::severalTopics);
        on.add("pattern", this::pattern);
        on.add("access_exclusive", this::accessExclusive);
        on.add("access_wait", this::accessWait);
        on.add("access_fencing", this::accessFencing);
        on.add("unsubscribe", this::unsubscribe);
        on.add("terminated_topic", this::terminatedTopic);
        on.add("schema_string_json", this::schemas);
        on.add("chunked", this::chunked);
        on.add("too_large", this::tooLarge);
        on.add("small_receiver_queue", this::smallReceiverQueue);
    }

    private void seekById() throws Exception {
        String topic = on.topic("seek");
        try (Consumer<byte[]> consumer = on.consumer(topic, SubscriptionType.Exclusive).subscribe();
                Producer<byte[]> producer = on.batching(topic, 5).create()) {
            Exerciser.send(producer, "m", 20);
            List<Message<byte[]>> got = Exerciser.next(consumer, 20);
            consumer.acknowledgeCumulative(got.get(19));
            // A seek to a message inside a batch goes on after that message.
            consumer.seek(got.get(7).getMessageId());
            Exerciser.same(
                    Exerciser.numbered("m", 8, 20), Exerciser.texts(Exerciser.next(consumer, 12)));
        }
    }

    private void seekByTime() throws Exception {
        String topic = on.topic("seek-time");
        try (Consumer<byte[]> consumer = on.consumer(topic, SubscriptionType.Exclusive).subscribe();
                Producer<byte[]> producer = on.producer(topic).create()) {
            Exerciser.send(producer, "old", 5);
            Thread.sleep(50);
            long between = System.currentTimeMillis();
            Thread.sleep(50);
            Exerciser.send(producer, "new", 5);
            consumer.acknowledgeCumulative(Exerciser.next(consumer, 10).get(9));
            consumer.seek(between);
            Exerciser.same(
                    Exerciser.numbered("new", 0, 5), Exerciser.texts(Exerciser.next(consumer, 5)));
            Exerciser.nothingMore(consumer);
        }
    }

    private void seekEnds() throws Exception {
        String topic = on.topic("seek-ends");
        try (Consumer<byte[]> consumer = on.consumer(topic, SubscriptionType.Shared).subscribe();
                Producer<byte[]> producer = on.producer(topic).create()) {
            Exerciser.send(producer, "m", 10);
            Exerciser.next(consumer, 3);
            consumer.seek(MessageId.latest);
            Exerciser.nothingMore(consumer);
            Exerciser.send(producer, "n", 1);
            Exerciser.same("n0", Exerciser.text(Exerciser.next(consumer)));
            consumer.seek(MessageId.earliest);
            Exerciser.same("m0", Exerciser.text(Exerciser.next(consumer)));
        }
    }

    private void reader() throws Exception {
        String topic = on.topic("reader");
        try (Producer<byte[]> producer = on.producer(topic).create()) {
            List<MessageId> ids = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                ids.add(producer.send(Exerciser.bytes("m" + i)));
            }
            try (Reader<byte[]> reader =
                    on.client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
                for (int i = 0; i < 10; i++) {
                    Exerciser.check(reader.hasMessageAvailable(), "the reader saw the end too early");
                    Message<byte[]> message = reader.readNext(Exerciser.WAIT_S, TimeUnit.SECONDS);
                    Exerciser.same("m" + i, Exerciser.text(message));
                }
                Exerciser.check(!reader.hasMessageAvailable(), "the reader did not see the end");
                reader.seek(ids.get(4));
                Exerciser.same(
                        "m5", Exerciser.text(reader.readNext(Exerciser.WAIT_S, TimeUnit.SECONDS)));
            }
            try (Reader<byte[]> reader =
                    on.client.newReader().topic(topic).startMessageId(ids.get(5)).create()) {
                Exerciser.same(
                        "m6", Exerciser.text(reader.readNext(Exerciser.WAIT_S, TimeUnit.SECONDS)));
            }
            try (Reader<byte[]> reader =
                    on.client
                            .newReader()
                            .topic(topic)
                            .startMessageId(ids.get(5))
                            .startMessageIdInclusive()
                            .create()) {
                Exerciser.same(
                        "m5", Exerciser.text(reader.readNext(Exerciser.WAIT_S, TimeUnit.SECONDS)));
            }
        }
    }

    private void lastMessageId() throws Exception {
        String topic = on.topic("last");
        try (Consumer<byte[]> consumer = on.consumer(topic, SubscriptionType.Exclusive).subscribe();
                Producer<byte[]> producer = on.batching(topic, 4).create()) {
            MessageIdAdv none = (MessageIdAdv) consumer.getLastMessageIds().get(0);
            Exerciser.same(-1L, none.getEntryId());
            Exerciser.send(producer, "m", 8);
            MessageIdAdv last = (MessageIdAdv) consumer.getLastMessageIds().get(0);
            Exerciser.same(1L, last.getEntryId());
            Exerciser.same(3, last.getBatchIndex());
        }
    }

    private void partitioned() throws Exception {
        String topic = on.partitioned("partitioned", 3);
        Exerciser.same(3, on.client.getPartitionsForTopic(topic).get(Exerciser.WAIT_S, TimeUnit.SECONDS).size());
        try (Consumer<byte[]> consumer = on.consumer(topic, SubscriptionType.Shared).subscribe();
                Producer<byte[]> producer = on.producer(topic).create()) {
            Set<Integer> partitions = new HashSet<>();
            for (int i = 0; i < 30; i++) {
                MessageIdAdv id =
                        (MessageIdAdv)
                                producer.newMessage().key("k" + i).value(Exerciser.bytes("m" + i)).send();
                partitions.add(id.getPartitionIndex());
            }
            Exerciser.same(Set.of(0, 1, 2), partitions);
            List<Message<byte[]>> got = Exerciser.next(consumer, 30);
            Exerciser.sameSet(Exerciser.numbered("m", 0, 30), Exerciser.texts(got));
            for (Message<byte[]> message : got) {
                consumer.acknowledge(message);
            }
        }
    }

    private void nonPersistent() throws Exception {
        String topic = on.topic("fleeting").replace("persistent://", "non-persistent://");
        try (Producer<byte[]> producer = on.producer(topic).create()) {
            Exerciser.send(producer, "lost", 3);
            try (Consumer<byte[]> first = on.consumer(topic, SubscriptionType.Shared).subscribe();
                    Consumer<byte[]> other =
                            on.consumer(topic, SubscriptionType.Exclusive)
                                    .subscriptionName("other")
                                    .subscribe()) {
                Exerciser.send(producer, "m", 10);
                Exerciser.same(
                        Exerciser.numbered("m", 0, 10), Exerciser.texts(Exerciser.next(first, 10)));
                Exerciser.same(
                        Exerciser.numbered("m", 0, 10), Exerciser.texts(Exerciser.next(other, 10)));
            }
        }
    }

    private void severalTopics() throws Exception {
        String one = on.topic("several");
        String two = on.topic("several");
        try (Consumer<byte[]> consumer =
                        on.client
                                .newConsumer()
                                .topics(List.of(one, two))
                                .subscriptionName("sub")
                                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                                .subscribe();
                Producer<byte[]> first = on.producer(one).create();
                Producer<byte[]> second = on.producer(two).create()) {
            Exerciser.send(first, "a", 5);
            Exerciser.send(second, "b", 5);
            List<String> expected = Exerciser.numbered("a", 0, 5);
            expected.addAll(Exerciser.numbered("b", 0, 5));
            Exerciser.sameSet(expected, Exerciser.texts(Exerciser.next(consumer, 10)));
        }
    }

    private void pattern() throws Exception {
        String base = on.topic("pattern");
        try (Producer<byte[]> first = on.producer(base + "-1").create()) {
            Exerciser.send(first, "a", 3);
            try (Consumer<byte[]> consumer =
                    on.client
                            .newConsumer()
                            .topicsPattern(Pattern.compile(base + "-.*"))
                            .subscriptionTopicsMode(RegexSubscriptionMode.PersistentOnly)
                            .patternAutoDiscoveryPeriod(2, TimeUnit.SECONDS)
                            .subscriptionName("sub")
                            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                            .subscribe()) {
                Exerciser.sameSet(
                        Exerciser.numbered("a", 0, 3), Exerciser.texts(Exerciser.next(consumer, 3)));
                try (Producer<byte[]> second = on.producer(base + "-2").create()) {
                    Exerciser.send(second, "b", 3);
                    Exerciser.sameSet(
                            Exerciser.numbered("b", 0, 3), Exerciser.texts(Exerciser.next(consumer, 3)));
                }
            }
        }
    }

    private void accessExclusive() throws Exception {
        String topic = on.topic("access");
        try (Producer<byte[]> only =
                on.producer(topic).accessMode(ProducerAccessMode.Exclusive).create()) {
            Exerciser.refused(
                    PulsarClientException.ProducerBusyException.class,
                    () -> on.producer(topic).create());
            Exerciser.refused(
                    PulsarClientException.ProducerFencedException.class,
                    () -> on.producer(topic).accessMode(ProducerAccessMode.Exclusive).create());
            only.send(Exerciser.bytes("m"));
        }
        on.producer(topic).create().close();
    }

    private void accessWait() throws Exception {
        String topic = on.topic("access-wait");
        Producer<byte[]> first =
                on.producer(topic).accessMode(ProducerAccessMode.WaitForExclusive).create();
        CompletableFuture<Producer<byte[]>> second =
                on.producer(topic).accessMode(ProducerAccessMode.WaitForExclusive).createAsync();
        Thread.sleep(200);
        Exerciser.check(!second.isDone(), "the second producer did not wait");
        first.close();
        try (Producer<byte[]> ready = second.get(Exerciser.WAIT_S, TimeUnit.SECONDS)) {
            ready.send(Exerciser.bytes("m"));
        }
    }

    private void accessFencing() throws Exception {
        String topic = on.topic("access-fence");
        Producer<byte[]> first =
                on.producer(topic).accessMode(ProducerAccessMode.Exclusive).create();
        try (Producer<byte[]> second =
                on.producer(topic).accessMode(ProducerAccessMode.ExclusiveWithFencing).create()) {
            second.send(Exerciser.bytes("m"));
            Exerciser.refused(
                    PulsarClientException.class, () -> first.send(Exerciser.bytes("too late")));
        }
        first.closeAsync();
    }

    private void unsubscribe() throws Exception {
        String topic = on.topic("unsubscribe");
        try (Producer<byte[]> producer = on.producer(topic).create()) {
            Consumer<byte[]> consumer = on.consumer(topic, SubscriptionType.Exclusive).subscribe();
            Exerciser.send(producer, "m", 3);
            consumer.acknowledge(Exerciser.next(consumer));
            consumer.unsubscribe();
            try (Consumer<byte[]> again =
                    on.consumer(topic, SubscriptionType.Exclusive).subscribe()) {
                // The subscription is a new one; messages that nobody else keeps may stay readable.
                Exerciser.same("m0", Exerciser.text(Exerciser.next(again)));
            }
        }
    }

    private void terminatedTopic() throws Exception {
        String topic = on.topic("terminated");
        try (Consumer<byte[]> consumer = on.consumer(topic, SubscriptionType.Exclusive).subscribe();
                Producer<byte[]> producer = on.producer(topic).create()) {
            Exerciser.send(producer, "m", 3);
            on.admin("POST", topic.replace("://", "/") + "/terminate", "");
            Exerciser.refused(
                    PulsarClientException.TopicTerminatedException.class,
                    () -> producer.send(Exerciser.bytes("too late")));
            consumer.acknowledgeCumulative(Exerciser.next(consumer, 3).get(2));
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Exerciser.WAIT_S);
            while (!consumer.hasReachedEndOfTopic() && System.nanoTime() < deadline) {
                Thread.sleep(20);
            }
            Exerciser.check(consumer.hasReachedEndOfTopic(), "the end of the topic was not told");
        }
    }

    /** A record for the JSON schema. */
    public static final class Reading {
        public String place;
        public int degrees;
    }

    private void schemas() throws Exception {
        String topic = on.topic("schema-string");
        try (Consumer<String> consumer =
                        on.client.newConsumer(Schema.STRING).topic(topic).subscriptionName("s").subscribe();
                Producer<String> producer = on.client.newProducer(Schema.STRING).topic(topic).create()) {
            producer.send("grüezi");
            Exerciser.same("grüezi", consumer.receive(Exerciser.WAIT_S, TimeUnit.SECONDS).getValue());
        }
        String json = on.topic("schema-json");
        Schema<Reading> schema = Schema.JSON(Reading.class);
        try (Consumer<Reading> consumer =
                        on.client.newConsumer(schema).topic(json).subscriptionName("s").subscribe();
                Producer<Reading> producer = on.client.newProducer(schema).topic(json).create()) {
            Reading reading = new Reading();
            reading.place = "Milan";
            reading.degrees = 31;
            producer.send(reading);
            Reading got = consumer.receive(Exerciser.WAIT_S, TimeUnit.SECONDS).getValue();
            Exerciser.same("Milan", got.place);
            Exerciser.same(31, got.degrees);
        }
    }

    private void chunked() throws Exception {
        String topic = on.topic("chunked");
        byte[] large = new byte[300_000];
        for (int i = 0; i < large.length; i++) {
            large[i] = (byte) (i * 31 + i / 256);
        }
        try (Consumer<byte[]> consumer = on.consumer(topic, SubscriptionType.Exclusive).subscribe();
                Producer<byte[]> producer =
                        on.producer(topic).enableChunking(true).chunkMaxMessageSize(100_000).create()) {
            producer.send(large);
            producer.send(Exerciser.bytes("small"));
            Message<byte[]> got = Exerciser.next(consumer);
            Exerciser.check(java.util.Arrays.equals(large, got.getData()), "the parts do not fit");
            consumer.acknowledge(got);
            Exerciser.same("small", Exerciser.text(Exerciser.next(consumer)));
        }
    }

    private void tooLarge() throws Exception {
        String topic = on.topic("too-large");
        try (Producer<byte[]> producer = on.producer(topic).create()) {
            Exerciser.refused(
                    PulsarClientException.InvalidMessageException.class,
                    () -> producer.send(new byte[5 * 1024 * 1024 + 1]));
            producer.send(new byte[5 * 1024 * 1024 - 10_000]);
        }
    }

    private void smallReceiverQueue() throws Exception {
        String topic = on.topic("queue-of-none");
        try (Producer<byte[]> producer = on.producer(topic).create();
                Consumer<byte[]> zero =
                        on.consumer(topic, SubscriptionType.Shared).receiverQueueSize(0).subscribe();
                Consumer<byte[]> one =
                        on.consumer(topic, SubscriptionType.Exclusive)
                                .subscriptionName("one")
                                .receiverQueueSize(1)
                                .subscribe()) {
            Exerciser.send(producer, "m", 10);
            for (int i = 0; i < 10; i++) {
                Message<byte[]> direct = zero.receiveAsync().get(Exerciser.WAIT_S, TimeUnit.SECONDS);
                Exerciser.same("m" + i, Exerciser.text(direct));
                Exerciser.same("m" + i, Exerciser.text(Exerciser.next(one)));
            }
        }
    }
}
