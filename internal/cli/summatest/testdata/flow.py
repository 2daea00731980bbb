"""Calls every method of the published Python client of Summa against the server at argv[1], and checks what comes back."""

import asyncio
import inspect
import sys

from summa_client_python import SummaClient

SCHEMA = """
index shop {
    field id: text<raw> [indexed, stored, fast, primary]
    field title: text<en_stem> [indexed<token_position>, stored]
    field body: text [indexed<chunked, token_position>, stored<multi>]
    field year: u64 [indexed, stored, fast]
    field price: f64 [stored, fast]
    field emb: dense_vector<4> [indexed<flat>, stored]
    field words: sparse_vector [indexed<format: maxscore>, stored]
    field bits: binary_dense_vector<8> [indexed, stored]
}
"""

called = set()


class Watched(SummaClient):
    """Notes which methods were called."""

    def __getattribute__(self, name):
        if not name.startswith("_") and callable(getattr(SummaClient, name, None)):
            called.add(name)
        return super().__getattribute__(name)


def doc(n, **more):
    return {
        "id": f"d{n}",
        "title": f"Lamp number {n} of the harbour",
        "body": ["a light over the sea", f"storm and rope {n}"],
        "year": 2000 + n,
        "price": n + 0.5,
        "emb": [1.0, float(n), 0.0, 0.5],
        "words": [(1, 0.5), (7 + n, 2.0)],
        **more,
    }


def ids(response):
    return [hit.fields["id"] for hit in response.hits]


def check(what, got, want):
    if got != want:
        raise AssertionError(f"{what}: {got!r}, want {want!r}")


async def flow(address):
    async with Watched(address) as c:
        check("create", await c.create_index("shop", SCHEMA), True)
        check("list", await c.list_indexes(), ["shop"])

        added = await c.index_documents("shop", [doc(n) for n in range(5)])
        check("indexed", added, (5, 0, []))
        await c.index_document("shop", doc(5))
        check("streamed", await c.index_documents_stream("shop", stream()), (3, []))
        check("before commit", ids(await c.search("shop", query={"all": {}}, fields_to_load=["id"])), [])
        check("commit", await c.commit("shop"), 9)

        info = await c.get_index_info("shop")
        check("documents", info.num_docs, 9)
        if "field title: text<en_stem>" not in info.schema:
            raise AssertionError(info.schema)

        queries = {
            "term": {"term": {"field": "title", "term": "harbour"}},
            "match": {"match": {"field": "title", "text": "lamps harbours"}},
            "passages": {"match": {"field": "body", "text": "light storm"}},
            "boolean": {"boolean": {"must": [{"term": {"field": "title", "term": "lamp"}}], "must_not": [{"range": {"field": "year", "min_u64": 2100}}]}},
            "boost": {"boost": {"query": {"term": {"field": "title", "term": "lamp"}}, "boost": 2.0}},
            "range": {"range": {"field": "year", "min_u64": 2000, "max_u64": 2100}},
            "all": {"all": {}},
            "dense": {"dense_vector": {"field": "emb", "vector": [1.0, 0.0, 0.0, 0.0]}},
            "sparse": {"sparse_vector": {"field": "words", "indices": [1], "values": [1.0]}},
        }
        for name, query in queries.items():
            found = ids(await c.search("shop", query=query, limit=20, fields_to_load=["id"]))
            check(name, sorted(found), [f"d{n}" for n in range(9)])
        check("one word", ids(await c.search("shop", query={"match": {"field": "body", "text": "5"}}, fields_to_load=["id"])), ["d5"])

        fused = await c.search(
            "shop",
            query={"fusion": {"queries": [{"query": queries["passages"], "name": "text"}, {"query": queries["dense"], "name": "dense"}], "method": "rrf"}},
            fields_to_load=["id"], include_rrf_scores=True, tracing=True,
        )
        check("fusion", (len(fused.hits), len(fused.trace.shards[0].queries)), (9, 2))
        formula = await c.search(
            "shop",
            query={"fusion": {"queries": [
                {"query": queries["passages"], "name": "text", "scope": "chunk"},
                {"query": queries["dense"], "name": "dense", "scope": "document"},
            ]}},
            fields_to_load=["id"], l1={"formula": "dense + 0*text"}, score_export={"passages_per_document": 2},
        )
        check("formula", formula.hits[0].fields["id"], "d0")
        near = await c.search(
            "shop", query=queries["all"], limit=3, candidate_limit=6, fields_to_load=["id"],
            reranker={"field": "emb", "vector": [0.0, 1.0, 0.0, 0.0]},
        )
        check("rerank", ids(near), ["d5", "d4", "d3"])

        hit = near.hits[0]
        whole = await c.get_document("shop", hit.address)
        check("document", (whole["id"], whole["year"], whole["body"]), ("d5", 2005, ["a light over the sea", "storm and rope 5"]))

        await c.upsert_document("shop", doc(0, title="Anchor"))
        await c.upsert_documents("shop", [doc(1, title="Anchor"), doc(20, title="Anchor")])
        await c.delete_document("shop", "d8")
        await c.delete_documents("shop", ["d7", "not there"])
        check("commit again", await c.commit("shop"), 8)
        check("anchors", sorted(ids(await c.search("shop", query={"term": {"field": "title", "term": "anchor"}}, fields_to_load=["id"]))), ["d0", "d1", "d20"])

        check("merge", await c.force_merge("shop"), 1)
        check("reorder", await c.reorder("shop"), 1)
        check("retrain", await c.retrain_vector_index("shop"), True)
        check("delete", await c.delete_index("shop"), True)
        check("list at the end", await c.list_indexes(), [])
        await c.close()
        await c.connect()

    every = {name for name, _ in inspect.getmembers(SummaClient, callable) if not name.startswith("_")}
    if every - called:
        raise AssertionError(f"methods that were not called: {sorted(every - called)}")
    print(f"{len(every)} methods of the client were called")


async def stream():
    for n in range(6, 9):
        yield doc(n)


asyncio.run(flow(sys.argv[1]))
