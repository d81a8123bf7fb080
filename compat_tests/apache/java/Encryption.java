import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.impl.DefaultCryptoKeyReader;
import org.apache.pulsar.client.impl.DefaultCryptoKeyReaderBuilder;

/**
 * Reads and writes encrypted messages. Arguments: service URL, folder of keys (NAME-public.pem and
 * NAME-private.pem), then for each topic four: write or read, keys (joined by +), form, topic. What
 * is read with several keys is decrypted by the last of them.
 */
public final class Encryption {
    private static final int CHUNK_BYTES = 100_000;
    private static final int MESSAGES = 5;

    private Encryption() {}

    public static void main(String[] arguments) throws Exception {
        String folder = arguments[1];
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build()) {
            for (int at = 2; at < arguments.length; at += 4) {
                String[] keys = arguments[at + 1].split("\\+");
                String form = arguments[at + 2];
                if (arguments[at].equals("write")) {
                    write(client, folder, keys, form, arguments[at + 3]);
                } else {
                    read(client, folder, keys[keys.length - 1], form, arguments[at + 3]);
                }
            }
        }
        System.out.println("done");
        System.exit(0);
    }

    private static byte[] payload(String form, int number) {
        byte[] made = new byte[form.equals("chunked") ? 350_000 : 300];
        for (int i = 0; i < made.length; i++) {
            made[i] = (byte) ((i * 7 + number) % 251);
        }
        return made;
    }

    private static void write(
            PulsarClient client, String folder, String[] keys, String form, String topic)
            throws Exception {
        DefaultCryptoKeyReaderBuilder reader = DefaultCryptoKeyReader.builder();
        ProducerBuilder<byte[]> builder = client.newProducer()
                .topic(topic)
                .enableBatching(form.equals("batched") || form.equals("compressed"))
                .batchingMaxPublishDelay(100, TimeUnit.MILLISECONDS);
        for (String key : keys) {
            reader.publicKey(key, "file://" + folder + "/" + key + "-public.pem");
            builder.addEncryptionKey(key);
        }
        if (form.equals("compressed")) {
            builder.compressionType(CompressionType.LZ4);
        }
        if (form.equals("chunked")) {
            builder.enableChunking(true)
                    .chunkMaxMessageSize(CHUNK_BYTES)
                    .compressionType(CompressionType.NONE);
        }
        try (Producer<byte[]> producer = builder.cryptoKeyReader(reader.build()).create()) {
            for (int n = 0; n < MESSAGES; n++) {
                producer.newMessage().key("key").property("n", "" + n)
                        .value(payload(form, n)).sendAsync();
            }
            producer.flush();
        }
    }

    private static void read(
            PulsarClient client, String folder, String key, String form, String topic)
            throws Exception {
        DefaultCryptoKeyReader reader = DefaultCryptoKeyReader.builder()
                .privateKey(key, "file://" + folder + "/" + key + "-private.pem")
                .defaultPrivateKey("file://" + folder + "/other-private.pem")
                .build();
        try (Consumer<byte[]> consumer = client.newConsumer()
                .topic(topic)
                .subscriptionName("java")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .cryptoKeyReader(reader)
                .subscribe()) {
            for (int n = 0; n < MESSAGES; n++) {
                Message<byte[]> message = consumer.receive(60, TimeUnit.SECONDS);
                if (message == null) {
                    throw new IllegalStateException(topic + ": message " + n + " didn't come");
                }
                if (!Arrays.equals(payload(form, n), message.getData())) {
                    throw new IllegalStateException(topic + ": message " + n + " is another");
                }
                if (!message.getEncryptionCtx().isPresent()) {
                    throw new IllegalStateException(topic + ": it wasn't encrypted");
                }
                consumer.acknowledge(message);
            }
        }
    }
}
