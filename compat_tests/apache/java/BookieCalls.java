import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import io.netty.buffer.UnpooledByteBufAllocator;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.util.ReferenceCounted;
import java.nio.charset.StandardCharsets;
import java.util.EnumSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.common.util.OrderedExecutor;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.net.BookieSocketAddress;
import org.apache.bookkeeper.proto.BookieClient;
import org.apache.bookkeeper.proto.BookieClientImpl;
import org.apache.bookkeeper.proto.BookieProtocol;
import org.apache.bookkeeper.proto.ReadLastConfirmedAndEntryContext;
import org.apache.bookkeeper.proto.DataFormats.LedgerMetadataFormat.DigestType;
import org.apache.bookkeeper.proto.checksum.DigestManager;
import org.apache.bookkeeper.stats.NullStatsLogger;
import org.apache.bookkeeper.util.ByteBufList;

/**
 * Calls one bookie by Apache's client, without any metadata, and prints each answer in a line.
 * The property {@code auth} names a client's plug-in. Arguments: host, port, "v2" or "v3", then calls, their words joined by colons.
 */
public final class BookieCalls {
    private static final byte[] PASSWORD = "secret".getBytes(StandardCharsets.UTF_8);

    private final BookieClient client;
    private final BookieId bookie = BookieId.parse("bookie-1:3181");
    private final boolean isV2;
    private byte[] masterKey;

    private BookieCalls(BookieClient client, boolean isV2) {
        this.client = client;
        this.isV2 = isV2;
    }

    public static void main(String[] arguments) throws Exception {
        boolean isV2 = arguments[2].equals("v2");
        ClientConfiguration conf = new ClientConfiguration();
        conf.setUseV2WireProtocol(isV2);
        conf.setClientAuthProviderFactoryClass(System.getProperty("auth", ""));
        BookieSocketAddress address =
                new BookieSocketAddress(arguments[0], Integer.parseInt(arguments[1]));
        BookieClient client = new BookieClientImpl(
                conf,
                new NioEventLoopGroup(1),
                UnpooledByteBufAllocator.DEFAULT,
                OrderedExecutor.newBuilder().name("calls").numThreads(1).build(),
                Executors.newSingleThreadScheduledExecutor(),
                NullStatsLogger.INSTANCE,
                id -> address);
        BookieCalls calls = new BookieCalls(client, isV2);
        for (int at = 3; at < arguments.length; at++) {
            String[] words = arguments[at].split(":");
            String answer;
            try {
                answer = calls.call(words).get(20, TimeUnit.SECONDS);
            } catch (Exception error) {
                answer = "failed " + error;
            }
            System.out.println(arguments[at] + " " + answer);
        }
        System.exit(0);
    }

    private DigestManager digest(long ledger) throws Exception {
        masterKey = DigestManager.generateMasterKey(PASSWORD);
        return DigestManager.instantiate(
                ledger, PASSWORD, DigestType.CRC32C, UnpooledByteBufAllocator.DEFAULT, isV2);
    }

    private static String said(int rc) {
        return rc == BKException.Code.OK ? "ok" : String.valueOf(rc);
    }

    private static String hex(ByteBuf buffer) {
        return buffer == null ? "none" : ByteBufUtil.hexDump(buffer);
    }

    private CompletableFuture<String> call(String[] words) throws Exception {
        CompletableFuture<String> answer = new CompletableFuture<>();
        long ledger = words.length > 1 ? Long.parseLong(words[1]) : 0;
        long second = words.length > 2 ? Long.parseLong(words[2]) : 0;
        DigestManager digest = digest(ledger);
        switch (words[0]) {
            case "add" -> add(digest, ledger, second, BookieProtocol.FLAG_NONE, WriteFlag.NONE, answer);
            case "recover" -> add(digest, ledger, second,
                    BookieProtocol.FLAG_RECOVERY_ADD | BookieProtocol.FLAG_HIGH_PRIORITY,
                    WriteFlag.NONE, answer);
            case "deferred" -> add(digest, ledger, second, BookieProtocol.FLAG_NONE,
                    EnumSet.of(WriteFlag.DEFERRED_SYNC), answer);
            case "read" -> client.readEntry(bookie, ledger, second, (rc, l, e, buffer, ctx) ->
                    answer.complete(said(rc) + " " + hex(buffer)), null, BookieProtocol.FLAG_NONE);
            case "fence" -> client.readEntry(bookie, ledger, BookieProtocol.LAST_ADD_CONFIRMED,
                    (rc, l, e, buffer, ctx) -> answer.complete(said(rc) + " " + hex(buffer)), null,
                    BookieProtocol.FLAG_DO_FENCING | BookieProtocol.FLAG_HIGH_PRIORITY, masterKey);
            case "many" -> client.batchReadEntries(bookie, ledger, second, Integer.parseInt(words[3]),
                    Long.parseLong(words[4]), (rc, l, e, list, ctx) ->
                    answer.complete(said(rc) + " " + (list == null ? 0 : list.size())), null,
                    BookieProtocol.FLAG_NONE);
            case "readlac" -> client.readLac(bookie, ledger, (rc, l, lac, buffer, ctx) ->
                    answer.complete(said(rc) + " " + hex(lac) + " " + hex(buffer)), null);
            case "writelac" -> client.writeLac(bookie, ledger, masterKey, second,
                    digest.computeDigestAndPackageForSendingLac(second), (rc, l, id, ctx) ->
                    answer.complete(said(rc)), null);
            case "wait" -> client.readEntryWaitForLACUpdate(bookie, ledger,
                    BookieProtocol.LAST_ADD_CONFIRMED, second, Long.parseLong(words[3]), true,
                    (rc, l, e, buffer, ctx) -> answer.complete(said(rc) + " " + hex(buffer)),
                    new ReadLastConfirmedAndEntryContext(0, bookie));
            case "force" -> client.forceLedger(bookie, ledger, (rc, l, id, ctx) ->
                    answer.complete(said(rc)), null);
            case "list" -> client.getListOfEntriesOfLedger(bookie, ledger).whenComplete((found, error) ->
                    answer.complete(error == null
                            ? "ok " + found.getTotalNumOfAvailableEntries()
                            : "failed " + error.getMessage()));
            case "info" -> client.getBookieInfo(bookie, 3, (rc, info, ctx) ->
                    answer.complete(said(rc) + " " + (info.getTotalDiskSpace() > 0)), null);
            default -> throw new IllegalArgumentException(words[0]);
        }
        return answer;
    }

    private void add(DigestManager digest, long ledger, long entry, int options,
            EnumSet<WriteFlag> flags, CompletableFuture<String> answer) {
        byte[] body = ("entry " + entry).getBytes(StandardCharsets.UTF_8);
        ReferenceCounted packet = digest.computeDigestAndPackageForSending(
                entry, entry - 1, 10 * (entry + 1), Unpooled.wrappedBuffer(body), masterKey, options);
        if (!isV2 && packet instanceof ByteBuf) {
            packet = ByteBufList.get((ByteBuf) packet);
        }
        client.addEntry(bookie, ledger, masterKey, entry, packet,
                (rc, l, e, id, ctx) -> answer.complete(said(rc)), null, options, false, flags);
    }
}
