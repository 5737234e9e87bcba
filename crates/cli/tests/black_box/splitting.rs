//! A split bulk, seen from both sides.

use std::io::{Read, Write};

use serde_json::json;

use crate::gateway::{Gateway, body, cluster, ids, statuses};

#[test]
fn each_document_reaches_its_primarys_node_and_items_keep_the_clients_order() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let answer = gateway.bulk(&body(1000)).ok().unwrap().json().unwrap();
    assert_eq!(answer["errors"], json!(false));
    let wanted: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    assert_eq!(ids(&answer, "index"), wanted);
    let counts = cluster.counts();
    assert_eq!((counts.docs, counts.misrouted, counts.bulks), (1000, 0, 3));
    assert_eq!(cluster.docs("logs").len(), 1000);
    assert_eq!(gateway.counter("docs_direct"), 1000);
}

#[test]
fn operations_on_one_document_stay_in_order() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let body: String = (0..300)
        .map(|n| {
            format!(
                "{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{}\"}}}}\n{{\"n\":{n}}}\n",
                n % 7
            )
        })
        .collect();
    gateway.bulk(&body).ok().unwrap();
    for (id, stored) in cluster.docs("logs") {
        let last = (0..300).rfind(|n| n % 7 == id.parse::<i32>().unwrap()).unwrap();
        assert_eq!(stored.source, format!("{{\"n\":{last}}}"));
    }
}

#[test]
fn the_index_in_the_url_is_the_default() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let body =
        "{\"index\":{\"_id\":\"a\"}}\n{}\n{\"create\":{\"_id\":\"b\"}}\n{}\n{\"delete\":{\"_id\":\"c\"}}\n";
    let answer = gateway
        .client()
        .post_ndjson("/logs/_bulk", body.as_bytes())
        .unwrap();
    assert_eq!(statuses(&answer.json().unwrap()), [201, 201, 404]);
    assert_eq!(cluster.counts().misrouted, 0);
}

#[test]
fn documents_without_ids_keep_having_none_and_nodes_take_turns() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let body = "{\"index\":{\"_index\":\"logs\"}}\n{}\n".repeat(30);
    for _ in 0..6 {
        let answer = gateway.bulk(&body).ok().unwrap().json().unwrap();
        assert_eq!(answer["items"].as_array().unwrap().len(), 30);
    }
    let counts = cluster.counts();
    assert_eq!((counts.docs, counts.bulks), (180, 6));
    assert_eq!(counts.docs_by_node, [60, 60, 60]);
    assert_eq!(gateway.counter("docs_any"), 180);
}

#[test]
fn gzip_bodies_are_split_too() {
    use std::io::Write as _;
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(body(500).as_bytes()).unwrap();
    let headers = [
        ("content-type", "application/x-ndjson"),
        ("content-encoding", "gzip"),
    ];
    let answer = gateway
        .client()
        .send("POST", "/_bulk", &headers, &gzip.finish().unwrap())
        .unwrap();
    assert_eq!(
        answer.ok().unwrap().json().unwrap()["items"]
            .as_array()
            .unwrap()
            .len(),
        500
    );
    assert_eq!((cluster.counts().docs, cluster.counts().misrouted), (500, 0));
}

#[test]
fn a_large_bulk_arrives_whole() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let filler = "x".repeat(20_000);
    let body: String = (0..1000)
        .map(|n| format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{n}\"}}}}\n{{\"n\":\"{filler}\"}}\n"))
        .collect();
    let answer = gateway.bulk(&body).ok().unwrap().json().unwrap();
    assert_eq!(answer["items"].as_array().unwrap().len(), 1000);
    assert_eq!(
        (cluster.docs("logs").len(), cluster.counts().misrouted),
        (1000, 0)
    );
}

/// The nodes' default limit, `http.max_content_length`.
const LARGEST: usize = 100 << 20;

#[test]
fn the_largest_body_that_nodes_take_comes_through_however_it_is_sent() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let mut body = Vec::with_capacity(LARGEST);
    let mut documents = 0;
    while body.len() < LARGEST - (2 << 20) {
        let action = format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{documents}\"}}}}\n{{\"n\":\"");
        body.extend_from_slice(action.as_bytes());
        (0..1 << 16).for_each(|_| {
            body.extend_from_slice(&fastrand::u64(1 << 60..).to_le_bytes().map(|byte| b'a' + byte % 2))
        });
        body.extend_from_slice(b"\"}\n");
        documents += 1;
    }
    body.truncate(body.len() - 3);
    body.resize(LARGEST - 3, b'x');
    body.extend_from_slice(b"\"}\n");
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(&body).unwrap();
    let packed = packer.finish().unwrap();

    let all = format!("Content-Length: {}\r\n\r\n", body.len());
    assert_eq!(send_whole(&gateway, &all, &[&body]), 200, "with its length");
    let pieces: Vec<Vec<u8>> = body
        .chunks(1 << 20)
        .map(|piece| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat())
        .collect();
    let mut pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
    pieces.push(b"0\r\n\r\n");
    let chunked = "Transfer-Encoding: chunked\r\n\r\n";
    assert_eq!(send_whole(&gateway, chunked, &pieces), 200, "in chunks");
    let gzip = format!(
        "Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        packed.len()
    );
    assert_eq!(send_whole(&gateway, &gzip, &[&packed]), 200, "packed");
    assert_eq!(
        (cluster.counts().docs, cluster.counts().misrouted),
        (3 * documents, 0)
    );

    // One byte more is too much, even where that is noticed only at the end.
    let last = pieces.pop().unwrap();
    let more: Vec<&[u8]> = pieces.into_iter().chain([&b"1\r\n\n\r\n"[..], last]).collect();
    assert_eq!(send_whole(&gateway, chunked, &more), 413, "one byte more");
}

/// Returns the status of a bulk that is sent in these pieces.
fn send_whole(gateway: &Gateway, head: &str, pieces: &[&[u8]]) -> u16 {
    let address = gateway.address;
    let mut socket = std::net::TcpStream::connect(address).unwrap();
    let start =
        "POST /_bulk HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n";
    socket.write_all(format!("{start}{head}").as_bytes()).unwrap();
    for piece in pieces {
        // A refused client may find the connection closed.
        let _ = socket.write_all(piece);
    }
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    let status = std::str::from_utf8(&answer[9..12]).unwrap();
    status.parse().unwrap()
}

#[test]
fn a_moved_shard_is_followed() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    for shard in 0..6 {
        cluster.move_shard("logs", shard, 1);
    }
    // Real clusters prove that it takes less than a second; here all tests run at once, and a busy machine
    // gets more time.
    let ends = std::time::Instant::now() + crate::gateway::PATIENCE;
    loop {
        cluster.reset_counts();
        gateway.bulk(&body(100)).ok().unwrap();
        let counts = cluster.counts().docs_by_node;
        if counts == [0, 100, 0] {
            break;
        }
        assert!(
            std::time::Instant::now() < ends,
            "still by the old places: {counts:?}"
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}
