//! Operations that the server refuses, one by one or with the whole request.

use crate::real::world as w;

use super::Inventor;

impl Inventor<'_> {
    /// Writes something that the bulk parser may refuse, or accept in its own way, and returns a description.
    pub(super) fn broken_operation(&mut self, body: &mut Vec<u8>, has_default: bool) -> String {
        let index = format!("{}{}", self.prefix, w::PLAIN);
        let auto = format!("{}{}", self.prefix, w::AUTO);
        let id = format!("s{}-broken", self.seed);
        let meta = format!("\"_index\":\"{index}\",\"_id\":\"{id}\"");
        let long = "y".repeat(513);
        let wide = "日".repeat(171);
        let source = "{\"n\":1}";
        let cases: Vec<String> = vec![
            "{\"index\":\n".to_owned(),
            format!("{{\"index\":{{{meta}}}\n{source}\n"),
            format!("{{\"index\":{{{meta}}}}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta}}}}} x\n{source}\n"),
            format!("{{\"index\":{{{meta}}}}}{{\"n\":1}}\n{source}\n"),
            format!("{{\"index\":{{{meta}}},\"create\":{{}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta}}},\"x\":1}}\n{source}\n"),
            format!("{{\"upsert\":{{{meta}}}}}\n{source}\n"),
            format!("{{\"INDEX\":{{{meta}}}}}\n{source}\n"),
            format!("{{\"index\":[{{{meta}}}]}}\n{source}\n"),
            format!("{{\"index\":null}}\n{source}\n"),
            format!("{{\"index\":\"{index}\"}}\n{source}\n"),
            "{}\n".to_owned(),
            "[]\n".to_owned(),
            "17\n".to_owned(),
            "\"index\"\n".to_owned(),
            "null\n".to_owned(),
            "not json\n".to_owned(),
            format!("\u{feff}{{\"index\":{{{meta}}}}}\n{source}\n"),
            format!("// a comment\n{{\"index\":{{{meta}}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta},}}}}\n{source}\n"),
            format!("{{'index':{{{meta}}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta},\"bogus\":1}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta},\"bogus\":{{\"a\":[1]}}}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta},\"bogus\":[1,2]}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta},\"_type\":\"_doc\"}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta},\"_routing\":\"x\"}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta},\"_version\":3}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta},\"parent\":\"x\"}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta},\"version\":3}}}}\n{source}\n"),
            format!(
                "{{\"index\":{{{meta},\"version\":\"three\",\"version_type\":\"external\"}}}}\n{source}\n"
            ),
            format!("{{\"index\":{{{meta},\"version\":0,\"version_type\":\"external\"}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta},\"version\":-4,\"version_type\":\"external\"}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta},\"version_type\":\"force\"}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta},\"version_type\":\"nonsense\"}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta},\"if_seq_no\":4}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta},\"if_primary_term\":1}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta},\"if_seq_no\":-7,\"if_primary_term\":1}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta},\"if_seq_no\":1e2,\"if_primary_term\":1}}}}\n{source}\n"),
            format!("{{\"create\":{{{meta},\"if_seq_no\":1,\"if_primary_term\":1}}}}\n{source}\n"),
            format!("{{\"create\":{{{meta},\"version\":3,\"version_type\":\"external\"}}}}\n{source}\n"),
            format!("{{\"create\":{{{meta},\"op_type\":\"index\"}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta},\"op_type\":\"delete\"}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta},\"op_type\":\"bogus\"}}}}\n{source}\n"),
            format!("{{\"update\":{{{meta},\"op_type\":\"index\"}}}}\n{{\"doc\":{source}}}\n"),
            format!(
                "{{\"update\":{{{meta},\"version\":2,\"version_type\":\"external\"}}}}\n{{\"doc\":{source}}}\n"
            ),
            format!(
                "{{\"update\":{{{meta},\"retry_on_conflict\":2,\"if_seq_no\":1,\"if_primary_term\":1}}}}\n{{\"doc\":{source}}}\n"
            ),
            format!("{{\"update\":{{{meta},\"retry_on_conflict\":\"x\"}}}}\n{{\"doc\":{source}}}\n"),
            format!("{{\"update\":{{{meta},\"retry_on_conflict\":99999999999}}}}\n{{\"doc\":{source}}}\n"),
            format!("{{\"index\":{{{meta},\"retry_on_conflict\":2147483648}}}}\n{source}\n"),
            format!("{{\"update\":{{{meta},\"_source\":5}}}}\n{{\"doc\":{source}}}\n"),
            format!("{{\"update\":{{{meta},\"_source\":[\"n\",\"t\"]}}}}\n{{\"doc\":{source}}}\n"),
            format!("{{\"update\":{{{meta},\"_source\":{{\"includes\":[\"n\"]}}}}}}\n{{\"doc\":{source}}}\n"),
            format!("{{\"update\":{{{meta},\"pipeline\":\"p\"}}}}\n{{\"doc\":{source}}}\n"),
            format!("{{\"update\":{{{meta}}}}}\n{{\"doc\":\n"),
            format!("{{\"update\":{{{meta}}}}}\n{{\"doc\":{source}\n"),
            format!("{{\"update\":{{{meta}}}}}\n{{\"doc\":5}}\n"),
            format!("{{\"update\":{{{meta}}}}}\n{{\"docs\":{source}}}\n"),
            format!("{{\"update\":{{{meta}}}}}\n[]\n"),
            format!("{{\"update\":{{{meta}}}}}\n{{}}\n"),
            format!("{{\"update\":{{{meta}}}}}\nnot json\n"),
            format!("{{\"update\":{{{meta}}}}}\n{{\"doc\":{source}}} trailing\n"),
            format!("{{\"update\":{{{meta}}}}}\n{{\"doc\":{source},\"script\":\"x\"}}\n"),
            format!("{{\"update\":{{{meta}}}}}\n{{\"doc\":{source},\"doc_as_upsert\":\"maybe\"}}\n"),
            format!("{{\"update\":{{\"_index\":\"{index}\"}}}}\n{{\"doc\":{source}}}\n"),
            format!("{{\"delete\":{{\"_index\":\"{index}\"}}}}\n"),
            format!("{{\"delete\":{{{meta},\"pipeline\":\"p\"}}}}\n"),
            format!("{{\"delete\":{{{meta},\"dynamic_templates\":{{}}}}}}\n"),
            format!("{{\"delete\":{{{meta}}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta}}}}}\n\n"),
            format!("{{\"index\":{{{meta}}}}}\n"),
            format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{long}\"}}}}\n{source}\n"),
            format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{wide}\"}}}}\n{source}\n"),
            format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"\"}}}}\n{source}\n"),
            format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":true}}}}\n{source}\n"),
            format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":1.50}}}}\n{source}\n"),
            format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":1e3}}}}\n{source}\n"),
            format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":-0}}}}\n{source}\n"),
            format!(
                "{{\"index\":{{\"_index\":\"{index}\",\"_id\":123456789012345678901234567890}}}}\n{source}\n"
            ),
            format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":[\"a\"]}}}}\n{source}\n"),
            format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":{{}}}}}}\n{source}\n"),
            format!(
                "{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{id}\",\"_id\":\"{id}2\"}}}}\n{source}\n"
            ),
            format!(
                "{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{id}\",\"routing\":\"a\",\"routing\":\"b\"}}}}\n{source}\n"
            ),
            format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"\\ud83e\"}}}}\n{source}\n"),
            format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"\\u00g1\"}}}}\n{source}\n"),
            format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"a\\x\"}}}}\n{source}\n"),
            format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"a\u{1}b\"}}}}\n{source}\n"),
            format!("{{\"\\u0069ndex\":{{\"_index\":\"{index}\",\"_\\u0069d\":\"{id}\"}}}}\n{source}\n"),
            format!(
                "{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{id}\",\"routing\":[\"a\"]}}}}\n{source}\n"
            ),
            format!("{{\"index\":{{\"_index\":null,\"_id\":\"{id}\"}}}}\n{source}\n"),
            format!("{{\"index\":{{\"_index\":\"\",\"_id\":\"{id}\"}}}}\n{source}\n"),
            format!("{{\"index\":{{\"_id\":\"{id}\"}}}}\n{source}\n"),
            format!(
                "{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{id}\",\"require_alias\":5}}}}\n{source}\n"
            ),
            format!(
                "{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{id}\",\"require_alias\":null}}}}\n{source}\n"
            ),
            format!(
                "{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{id}\",\"pipeline\":null}}}}\n{source}\n"
            ),
            format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{id}\",\"pipeline\":7}}}}\n{source}\n"),
            format!(
                "{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{id}\",\"dynamic_templates\":{{\"kw_a\":\"as_kw\"}}}}}}\n{source}\n"
            ),
            format!(
                "{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{id}\",\"dynamic_templates\":{{\"fresh\":\"no_such\"}}}}}}\n{{\"fresh\":\"1\"}}\n"
            ),
            format!(
                "{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{id}\",\"dynamic_templates\":[]}}}}\n{source}\n"
            ),
            format!(
                "{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{id}\",\"require_data_stream\":true}}}}\n{source}\n"
            ),
            format!(
                "{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{id}\",\"list_executed_pipelines\":true}}}}\n{source}\n"
            ),
            format!("{{\n\"index\":{{{meta}}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta}}}}}\n{{\n\"n\":1}}\n"),
            format!("\t{{\"index\":{{{meta}}}}}\n{source}\n"),
            format!("{{\"index\":{{{meta}}}}}\t\n{source}\n"),
            format!("{{\"index\":{{{meta}}}}}\r{source}\n"),
            " \n".to_owned(),
            "\0\n".to_owned(),
            format!("{{\"index\":{{\"_index\":\"{auto}\"}}}}\n{source}\n"),
            format!("{{\"create\":{{\"_index\":\"{auto}\"}}}}\n{source}\n"),
            format!("{{\"delete\":{{}}}}\n"),
        ];
        let choice = self.rng.usize(0..cases.len() + 2);
        let text = match cases.get(choice) {
            Some(text) => text.clone().into_bytes(),
            // Bytes that are not UTF-8, in the id and in the source.
            None if choice == cases.len() => {
                let mut line = format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"").into_bytes();
                line.extend_from_slice(b"a\xff\xc3\"}}\n{\"n\":1}\n");
                line
            }
            None => {
                let mut line = format!("{{\"index\":{{{meta}}}}}\n{{\"t\":\"").into_bytes();
                line.extend_from_slice(b"a\xff\xc3\"}\n");
                line
            }
        };
        body.extend_from_slice(&text);
        let shown = String::from_utf8_lossy(&text);
        let shown: String = shown.chars().take(160).collect();
        format!(
            "broken ({choice}{}): {shown:?}",
            if has_default { ", index in the URL" } else { "" }
        )
    }
}
