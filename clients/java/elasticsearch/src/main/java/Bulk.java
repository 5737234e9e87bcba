import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

import co.elastic.clients.elasticsearch.ElasticsearchClient;
import co.elastic.clients.elasticsearch._helpers.bulk.BulkIngester;
import co.elastic.clients.elasticsearch._helpers.bulk.BulkListener;
import co.elastic.clients.elasticsearch.core.BulkRequest;
import co.elastic.clients.elasticsearch.core.BulkResponse;
import co.elastic.clients.json.jackson.JacksonJsonpMapper;
import co.elastic.clients.transport.rest_client.RestClientTransport;
import org.apache.http.HttpHost;
import org.elasticsearch.client.RestClient;

/** BulkIngester of elasticsearch-java; ../../../../../README.md says what is asked of it. */
public class Bulk {
    static final String NAME = "ingester";

    public static void main(String[] args) throws Exception {
        String index = args[1];
        var ok = new AtomicInteger();
        List<String> failed = Collections.synchronizedList(new ArrayList<>());
        List<Throwable> broken = Collections.synchronizedList(new ArrayList<>());
        BulkListener<Void> listener = new BulkListener<>() {
            @Override
            public void beforeBulk(long id, BulkRequest request, List<Void> contexts) {}

            @Override
            public void afterBulk(long id, BulkRequest request, List<Void> contexts, BulkResponse response) {
                for (var item : response.items()) {
                    if (item.error() == null) {
                        ok.incrementAndGet();
                    } else if (item.status() == 400) {
                        failed.add(item.id());
                    } else {
                        broken.add(new IllegalStateException(item.id() + ": " + item.status()));
                    }
                }
            }

            @Override
            public void afterBulk(long id, BulkRequest request, List<Void> contexts, Throwable failure) {
                broken.add(failure);
            }
        };
        try (var transport = new RestClientTransport(
                RestClient.builder(HttpHost.create(args[0])).build(), new JacksonJsonpMapper())) {
            var client = new ElasticsearchClient(transport);
            try (var ingester = BulkIngester.<Void>of(b -> b.client(client).maxOperations(300)
                    .maxConcurrentRequests(3).listener(listener))) {
                for (int n = 0; n < 1000; n++) {
                    if (n == 500) {
                        index(ingester, index, NAME + "-bad", Map.of("n", "not a number"));
                    }
                    String line = "line " + n + " of " + NAME + ": é 日本 🦀 \"quoted\"";
                    index(ingester, index, NAME + "-" + n, Map.of("n", n, "line", line));
                }
                ingester.add(o -> o.update(u -> u.index(index).id("old-" + NAME).action(a -> a.doc(Map.of("n", -1)))));
                ingester.add(o -> o.delete(d -> d.index(index).id("gone-" + NAME)));
            }
        }
        if (!broken.isEmpty()) {
            throw new IllegalStateException(broken.get(0));
        }
        System.out.println(new com.fasterxml.jackson.databind.ObjectMapper()
                .writeValueAsString(Map.of(NAME, Map.of("ok", ok.get(), "failed", failed))));
    }

    static void index(BulkIngester<Void> ingester, String index, String id, Map<String, Object> document) {
        ingester.add(o -> o.index(i -> i.index(index).id(id).document(document)));
    }
}
