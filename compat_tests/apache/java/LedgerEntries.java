import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * Reads entries of brokers' ledgers by Apache's client, without recovery. Argument: metadata service
 * URI. Each line of the input has a ledger id, and the first and the last entry id; each answer is
 * one line for each entry, in Base64, or one of "error" and why.
 */
public final class LedgerEntries {
    private LedgerEntries() {}

    public static void main(String[] arguments) throws Exception {
        ClientConfiguration conf = new ClientConfiguration();
        conf.setMetadataServiceUri(arguments[0]);
        BookKeeper client = new BookKeeper(conf);
        System.out.println("ready");
        BufferedReader input = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            try {
                read(client, Long.parseLong(words[0]), Long.parseLong(words[1]),
                        Long.parseLong(words[2])).forEach(System.out::println);
            } catch (Exception failure) {
                System.out.println("error " + failure);
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static List<String> read(BookKeeper client, long ledgerId, long first, long last)
            throws Exception {
        List<String> found = new ArrayList<>();
        try (ReadHandle ledger = client.newOpenLedgerOp().withLedgerId(ledgerId)
                .withRecovery(false).withDigestType(DigestType.CRC32C)
                .withPassword(new byte[0]).execute().get()) {
            for (long from = first; from <= last; from += 1000) {
                long to = Math.min(last, from + 999);
                for (LedgerEntry entry : ledger.readUnconfirmed(from, to)) {
                    found.add(Base64.getEncoder().encodeToString(entry.getEntryBytes()));
                }
            }
        }
        return found;
    }
}
