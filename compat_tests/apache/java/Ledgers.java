import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * Ledgers by Apache's client. Arguments: metadata service URI, then "write" and a number of entries
 * (prints the id of the ledger, which stays open), or "read" and an id (recovers an open ledger,
 * prints its entries), or "recover" and ids (recovers one after the other, prints the time of the
 * last one).
 */
public final class Ledgers {
    private Ledgers() {}

    public static void main(String[] arguments) {
        try {
            call(arguments);
        } catch (Exception failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void call(String[] arguments) throws Exception {
        ClientConfiguration conf = new ClientConfiguration();
        conf.setMetadataServiceUri(arguments[0]);
        BookKeeper client = new BookKeeper(conf);
        byte[] password = "secret".getBytes(StandardCharsets.UTF_8);
        if (arguments[1].equals("recover")) {
            recover(client, password, arguments);
            return;
        }
        long number = Long.parseLong(arguments[2]);
        if (arguments[1].equals("write")) {
            WriteHandle ledger = client.newCreateLedgerOp()
                    .withEnsembleSize(3).withWriteQuorumSize(3).withAckQuorumSize(2)
                    .withDigestType(DigestType.CRC32C).withPassword(password)
                    .withCustomMetadata(Map.of())
                    .execute().get();
            for (long n = 0; n < number; n++) {
                ledger.append(Long.toString(n).getBytes(StandardCharsets.UTF_8));
            }
            System.out.println(ledger.getId());
            return;
        }
        ReadHandle ledger = client.newOpenLedgerOp().withLedgerId(number).withRecovery(true)
                .withDigestType(DigestType.CRC32C).withPassword(password).execute().get();
        System.out.println(ledger.getLastAddConfirmed());
        if (ledger.getLastAddConfirmed() >= 0) {
            try (LedgerEntries entries = ledger.read(0, ledger.getLastAddConfirmed())) {
                for (LedgerEntry entry : entries) {
                    System.out.println(new String(entry.getEntryBytes(), StandardCharsets.UTF_8));
                }
            }
        }
    }

    private static void recover(BookKeeper client, byte[] password, String[] arguments)
            throws Exception {
        double seconds = 0;
        long last = -1;
        for (int at = 2; at < arguments.length; at++) {
            long began = System.nanoTime();
            last = client.newOpenLedgerOp().withLedgerId(Long.parseLong(arguments[at]))
                    .withRecovery(true).withDigestType(DigestType.CRC32C).withPassword(password)
                    .execute().get().getLastAddConfirmed();
            seconds = (System.nanoTime() - began) / 1e9;
        }
        System.out.println("{\"recover_s\": " + seconds + ", \"last\": " + last + "}");
    }
}
