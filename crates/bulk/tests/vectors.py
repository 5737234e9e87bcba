#!/usr/bin/env python3
"""Writes vectors.txt: shards of generated documents, by a plain reading of the servers' routing rules.

    python3 vectors.py > vectors.txt

The rules were compared with real OpenSearch 3.8 and 2.19 and Elasticsearch 9.5, 8.19, 7.10 and 6.8 clusters.
Each line is an index (shards, routing_num_shards or "-" for plain modulo, partition size), a kind of id, and a checksum over
the shards of 10,000 documents; the first shards stand there too, for a person to look at.
"""

MASK = 0xFFFFFFFF


def murmur3(text):
    """murmur3_x86_32, seed 0, over UTF-16LE; signed."""
    data = text.encode("utf-16-le")

    def mix(k):
        k = k * 0xCC9E2D51 & MASK
        k = (k << 15 | k >> 17) & MASK
        return k * 0x1B873593 & MASK

    h = 0
    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        h ^= mix(int.from_bytes(data[i:i + 4], "little"))
        h = (h << 13 | h >> 19) & MASK
        h = (h * 5 + 0xE6546B64) & MASK
    if whole < len(data):
        h ^= mix(int.from_bytes(data[whole:], "little"))
    h ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        h = (h ^ h >> shift) * factor & MASK
    return h - (1 << 32) if h >> 31 else h


def shard_of(doc_id, routing, shards, routing_num_shards, partition):
    offset = murmur3(doc_id) % partition if partition > 1 else 0
    value = murmur3(routing if routing is not None else doc_id) + offset
    value = (value + (1 << 31)) % (1 << 32) - (1 << 31)
    if routing_num_shards is None:
        return value % shards
    return value % routing_num_shards // (routing_num_shards // shards)


def document(kind, number):
    """The id and routing of a kind's nth document."""
    spread = number * 2654435761 % (1 << 32)
    if kind == "number":
        return str(number), None
    if kind == "ascii":
        return f"doc-{spread:x}-{number}", None
    if kind == "unicode":
        # Cyrillic, CJK, astral: one, one and two code units each.
        text = chr(0x410 + spread % 32) + chr(0x4E00 + spread % 20000) + chr(0x1F300 + spread % 700)
        return text * (1 + number % 3) + str(number), None
    if kind == "escaped":
        return f'a"b\\{number}\n\t{chr(1 + spread % 31)}', None
    if kind == "long":
        return "x" * (number % 500) + str(number), None
    assert kind == "routed"
    return f"id-{number}", f"r{spread % 97}é"


INDICES = [(1, 1024, 1), (3, 768, 1), (5, 640, 1), (6, 768, 1), (7, 896, 1), (16, 1024, 1), (300, 300, 1), (3, None, 1),
           (7, None, 1), (300, None, 1), (8, 1024, 3), (7, None, 2), (2, 30, 1), (15, 30, 1), (1024, 1 << 20, 5)]


def main():
    for shards, slots, partition in INDICES:
        for kind in ["routed"] if partition > 1 else ["number", "ascii", "unicode", "escaped", "long", "routed"]:
            found = [shard_of(*document(kind, n), shards, slots, partition) for n in range(10_000)]
            checksum = 0
            for shard in found:
                checksum = (checksum * 31 + shard + 1) % (1 << 64)
            print(shards, "-" if slots is None else slots, partition, kind, f"{checksum:016x}", *found[:12])


main()
