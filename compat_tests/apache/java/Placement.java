import io.netty.util.HashedWheelTimer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.bookkeeper.client.BKException.BKNotEnoughBookiesException;
import org.apache.bookkeeper.client.EnsemblePlacementPolicy;
import org.apache.bookkeeper.client.RackawareEnsemblePlacementPolicy;
import org.apache.bookkeeper.client.RegionAwareEnsemblePlacementPolicy;
import org.apache.bookkeeper.common.util.ReflectionUtils;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.feature.SettableFeatureProvider;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.net.BookieSocketAddress;
import org.apache.bookkeeper.stats.NullStatsLogger;
import org.apache.pulsar.bookie.rackawareness.BookieRackAffinityMapping;
import org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy;
import org.apache.pulsar.metadata.api.MetadataStore;
import org.apache.pulsar.metadata.api.MetadataStoreConfig;
import org.apache.pulsar.metadata.api.MetadataStoreFactory;

/**
 * Asks Apache's placement policies about clusters. A line of input is a case, its fields separated
 * by tabs: kind (rack, region, isolated), sizes "E,WQ,AQ", settings "name=value;...", the JSON of
 * the node /bookies, writable bookies, then ensembles, whose bookies commas separate. The answer is
 * a line with a word for each ensemble, for an empty one what Apache's policy reaches itself. With
 * "isolated" the ledger's own policy comes instead, and the answer is the bookies it may have.
 */
public final class Placement {
    private static final int ATTEMPTS = 8;

    public static void main(String[] args) throws Exception {
        HashedWheelTimer timer = new HashedWheelTimer();
        int cases = 0;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            // One of its own for each case: earlier policies go on listening.
            MetadataStore store = MetadataStoreFactory.create(
                    "memory:case-" + cases++, MetadataStoreConfig.builder().build());
            System.out.println(answer(line.split("\t", -1), timer, store));
        }
        System.out.flush();
        System.exit(0);
    }

    private static String answer(String[] fields, HashedWheelTimer timer, MetadataStore store) throws Exception {
        String kind = fields[0];
        int[] sizes = Arrays.stream(fields[1].split(",")).mapToInt(Integer::parseInt).toArray();
        ClientConfiguration conf = new ClientConfiguration();
        for (String setting : fields[2].split(";")) {
            if (!setting.isEmpty()) {
                // A comma would make a list of it.
                String[] pair = setting.split("=", 2);
                conf.setProperty(pair[0], pair[1].replace('+', ';'));
            }
        }
        store.put("/bookies", fields[3].getBytes(StandardCharsets.UTF_8), Optional.empty()).get();
        conf.setProperty(BookieRackAffinityMapping.METADATA_STORE_INSTANCE, store);
        conf.setProperty("reppDnsResolverClass", BookieRackAffinityMapping.class.getName());
        Class<? extends EnsemblePlacementPolicy> type = kind.equals("rack") ? RackawareEnsemblePlacementPolicy.class
                : kind.equals("region") ? RegionAwareEnsemblePlacementPolicy.class
                : IsolatedBookieEnsemblePlacementPolicy.class;
        EnsemblePlacementPolicy policy = ReflectionUtils.newInstance(type);
        policy.initialize(conf, Optional.empty(), timer, SettableFeatureProvider.DISABLE_ALL,
                NullStatsLogger.INSTANCE, Placement::resolve);
        Set<BookieId> writable = new HashSet<>(ids(fields[4]));
        policy.onClusterChanged(writable, new HashSet<>());
        if (kind.equals("isolated")) {
            return allowed(policy, sizes[0], fields[5], writable);
        }
        List<String> said = new ArrayList<>();
        for (int at = 5; at < fields.length; at++) {
            said.add(fields[at].isEmpty() ? own(policy, sizes) : judge(policy, kind, ids(fields[at]), sizes, writable));
        }
        return String.join("\t", said);
    }

    /** The writable bookies that a ledger may have whose custom metadata has this policy. */
    private static String allowed(EnsemblePlacementPolicy policy, int size, String own, Set<BookieId> writable)
            throws Exception {
        var racks = IsolatedBookieEnsemblePlacementPolicy.class.getDeclaredField("cachedRackConfiguration");
        racks.setAccessible(true);
        while (racks.get(policy) == null) {
            Thread.sleep(1);
        }
        Map<String, byte[]> metadata = new HashMap<>();
        if (!own.isEmpty()) {
            metadata.put("EnsemblePlacementPolicyConfig", own.getBytes(StandardCharsets.UTF_8));
        }
        var excluded = IsolatedBookieEnsemblePlacementPolicy.class.getDeclaredMethod(
                "getExcludedBookies", int.class, Map.class);
        excluded.setAccessible(true);
        Set<String> left = new TreeSet<>();
        writable.forEach(each -> left.add(each.toString()));
        ((Set<?>) excluded.invoke(policy, size, metadata)).forEach(each -> left.remove(each.toString()));
        return String.join(",", left);
    }

    /** Whether the policy itself would have found an ensemble that it approves of; or any. */
    private static String own(EnsemblePlacementPolicy policy, int[] sizes) {
        Map<String, byte[]> metadata = new HashMap<>();
        String found = "NONE";
        Set<String> chosen = new TreeSet<>();
        for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
            try {
                var result = policy.newEnsemble(sizes[0], sizes[1], sizes[2], metadata, new HashSet<>());
                result.getResult().forEach(each -> chosen.add(each.toString()));
                if (!found.equals("MEETS_STRICT")) {
                    found = result.getAdheringToPolicy().toString();
                }
            } catch (Exception notEnough) {
                continue;
            }
        }
        return found + ":" + String.join(",", chosen);
    }

    private static String judge(EnsemblePlacementPolicy policy, String kind, List<BookieId> ensemble, int[] sizes,
            Set<BookieId> writable) {
        if (!kind.equals("region")) {
            return policy.isEnsembleAdheringToPlacementPolicy(ensemble, sizes[1], sizes[2]).toString();
        }
        // This policy approves of all ensembles, but makes only those that regions are right for.
        Set<BookieId> rest = new HashSet<>(writable);
        rest.removeAll(ensemble);
        try {
            policy.newEnsemble(sizes[0], sizes[1], sizes[2], new HashMap<>(), rest);
            return "MEETS_STRICT";
        } catch (BKNotEnoughBookiesException notSo) {
            return "FAIL";
        }
    }

    private static BookieSocketAddress resolve(BookieId id) {
        try {
            return new BookieSocketAddress(id.toString());
        } catch (Exception wrong) {
            throw new IllegalArgumentException(wrong);
        }
    }

    private static List<BookieId> ids(String text) {
        List<BookieId> found = new ArrayList<>();
        for (String each : text.split(",")) {
            if (!each.isEmpty()) {
                found.add(BookieId.parse(each));
            }
        }
        return found;
    }
}
