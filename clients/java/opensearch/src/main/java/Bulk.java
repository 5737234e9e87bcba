import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import org.apache.hc.core5.http.HttpHost;
import org.opensearch.client.json.jackson.JacksonJsonpMapper;
import org.opensearch.client.opensearch.OpenSearchClient;
import org.opensearch.client.opensearch.core.BulkRequest;
import org.opensearch.client.opensearch.core.bulk.BulkOperation;
import org.opensearch.client.transport.httpclient5.ApacheHttpClient5TransportBuilder;

/** BulkRequest of opensearch-java; ../../../../../README.md says what is asked of it. */
public class Bulk {
    static final String NAME = "request";

    public static void main(String[] args) throws Exception {
        String index = args[1];
        var transport = ApacheHttpClient5TransportBuilder.builder(HttpHost.create(args[0]))
                .setMapper(new JacksonJsonpMapper()).build();
        var client = new OpenSearchClient(transport);
        List<BulkOperation> operations = new ArrayList<>();
        for (int n = 0; n < 1000; n++) {
            if (n == 500) {
                operations.add(index(index, NAME + "-bad", Map.of("n", "not a number")));
            }
            String line = "line " + n + " of " + NAME + ": é 日本 🦀 \"quoted\"";
            operations.add(index(index, NAME + "-" + n, Map.of("n", n, "line", line)));
        }
        operations.add(BulkOperation.of(o -> o.update(u -> u.index(index).id("old-" + NAME).document(Map.of("n", -1)))));
        operations.add(BulkOperation.of(o -> o.delete(d -> d.index(index).id("gone-" + NAME))));

        int ok = 0;
        List<String> failed = new ArrayList<>();
        for (int from = 0; from < operations.size(); from += 300) {
            var part = operations.subList(from, Math.min(from + 300, operations.size()));
            var answer = client.bulk(new BulkRequest.Builder().operations(part).build());
            for (var item : answer.items()) {
                if (item.error() == null) {
                    ok++;
                } else if (item.status() == 400) {
                    failed.add(item.id());
                } else {
                    throw new IllegalStateException(item.id() + ": " + item.status());
                }
            }
        }
        System.out.println(new com.fasterxml.jackson.databind.ObjectMapper()
                .writeValueAsString(Map.of(NAME, Map.of("ok", ok, "failed", failed))));
        transport.close();
    }

    static BulkOperation index(String index, String id, Map<String, Object> document) {
        return BulkOperation.of(o -> o.index(i -> i.index(index).id(id).document(document)));
    }
}
