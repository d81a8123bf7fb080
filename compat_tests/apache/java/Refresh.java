import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.impl.auth.AuthenticationToken;

/**
 * Sends with a token that is read from a file each time it is asked for, until it was so often or
 * for so many seconds; prints how often it was.
 *
 * <p>Usage: {@code Refresh URL TOPIC TOKEN_FILE TIMES SECONDS}
 */
public final class Refresh {
    private Refresh() {}

    public static void main(String[] arguments) throws Exception {
        Path file = Path.of(arguments[2]);
        AtomicInteger asked = new AtomicInteger();
        AuthenticationToken who =
                new AuthenticationToken(
                        () -> {
                            asked.incrementAndGet();
                            return read(file);
                        });
        int times = Integer.parseInt(arguments[3]);
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Long.parseLong(arguments[4]));
        try (PulsarClient client =
                        PulsarClient.builder()
                                .serviceUrl(arguments[0])
                                .authentication(who)
                                .operationTimeout(30, TimeUnit.SECONDS)
                                .statsInterval(0, TimeUnit.SECONDS)
                                .build();
                Producer<byte[]> producer = client.newProducer().topic(arguments[1]).create()) {
            while (asked.get() < times && System.nanoTime() < end) {
                producer.send("x".getBytes(StandardCharsets.US_ASCII));
                Thread.sleep(100);
            }
            producer.send("with the last one".getBytes(StandardCharsets.US_ASCII));
        }
        System.out.println("asked " + asked.get());
    }

    private static String read(Path file) {
        try {
            return Files.readString(file).strip();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
