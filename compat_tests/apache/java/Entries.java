import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.TypedMessageBuilder;

/**
 * Writes batches and single messages with all that a message may carry. Arguments: service URL,
 * topic, number of messages of each kind.
 */
public final class Entries {
    private Entries() {}

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[2]);
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build()) {
            for (boolean batching : new boolean[] {true, false}) {
                try (Producer<byte[]> producer = client.newProducer()
                        .topic(arguments[1])
                        .enableBatching(batching)
                        .batchingMaxMessages(count)
                        .batchingMaxPublishDelay(5, TimeUnit.SECONDS)
                        .compressionType(batching ? CompressionType.LZ4 : CompressionType.NONE)
                        .create()) {
                    for (int n = 0; n < count; n++) {
                        describe(producer.newMessage(), n).sendAsync();
                    }
                    producer.flush();
                }
            }
        }
        System.out.println("done");
        System.exit(0);
    }

    /** Number n has a key, bytes as key, an ordering key, a property, a time, or no value. */
    private static TypedMessageBuilder<byte[]> describe(TypedMessageBuilder<byte[]> message, int n) {
        byte[] text = Integer.toString(n).getBytes(StandardCharsets.UTF_8);
        message.value(n % 6 == 5 ? null : text);
        switch (n % 6) {
            case 0 -> message.key("key-" + n);
            case 1 -> message.keyBytes(new byte[] {(byte) n, -1, 0});
            case 2 -> message.orderingKey(text);
            case 3 -> message.property("n", Integer.toString(n)).property("o", "");
            case 4 -> message.eventTime(1000L + n);
            default -> message.key("gone");
        }
        return message;
    }
}
