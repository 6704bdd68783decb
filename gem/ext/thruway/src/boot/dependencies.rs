//! The methods that stand between a call of Psych or JSON and its result, for a document without tags.
//!
//! A test traces the methods that are called, and checks that each is listed here.

use super::called_names::{CodeSearch, Place};
use super::originals::{Constants, Dependencies, Methods, Side};

macro_rules! methods {
    ($side:ident $($path:literal).+ : $($name:literal)+) => {
        Methods { path: &[$($path),+], side: Side::$side, names: &[$($name),+] }
    };
}

macro_rules! place {
    ($side:ident $($path:literal).+) => {
        Place { path: &[$($path),+], side: Side::$side }
    };
}

macro_rules! constants {
    ($($path:literal).* : $($name:literal)+) => {
        Constants { path: &[$($path),*], names: &[$($name),+] }
    };
}

pub(super) const YAML: Dependencies = Dependencies {
    feature: b"/psych.rb",
    folder_ends_at: b".rb",
    library: PSYCH,
    core: PSYCH_CORE,
    constants: PSYCH_CONSTANTS,
};

pub(super) const JSON: Dependencies = Dependencies {
    feature: b"/json/common.rb",
    folder_ends_at: b"/common.rb",
    library: JSON_LIBRARY,
    core: JSON_CORE,
    constants: JSON_CONSTANTS,
};

/// How to find further methods in the code of JSON itself.
pub(super) const JSON_CODE: CodeSearch = CodeSearch {
    entries: &[methods!(Own c"JSON": c"parse")],
    modules: &[
        place!(Own c"JSON"),
        place!(Own c"JSON".c"ParserOptions"),
        place!(Own c"JSON".c"Parser"),
        place!(Instances c"JSON".c"Parser"),
        place!(Own c"JSON".c"Ext".c"ParserConfig"),
        place!(Instances c"JSON".c"Ext".c"ParserConfig"),
    ],
    core: &[
        place!(Instances c"Hash"),
        place!(Own c"Hash"),
        place!(Instances c"Array"),
        place!(Own c"Array"),
        place!(Instances c"String"),
        place!(Instances c"Symbol"),
        place!(Instances c"NilClass"),
        place!(Instances c"TrueClass"),
        place!(Instances c"FalseClass"),
        place!(Instances c"Proc"),
    ],
    // The pack does not answer where the program asks for additions.
    unreached: &[c"create_additions_proc"],
};

const PSYCH: &[Methods] = &[
    methods!(Own c"Psych": c"config" c"domain_types" c"load" c"load_tags" c"parse" c"parse_stream"
        c"safe_load" c"unsafe_load"),
    methods!(Own c"Psych".c"Visitors".c"ToRuby": c"create"),
    methods!(Own c"Psych".c"Visitors".c"Visitor": c"dispatch_cache"),
    methods!(Instances c"Psych".c"Handlers".c"DocumentStream": c"alias" c"empty" c"end_document"
        c"end_mapping" c"end_sequence" c"end_stream" c"event_location" c"initialize" c"pop" c"push"
        c"scalar" c"set_end_location" c"set_location" c"set_start_location" c"start_document"
        c"start_mapping" c"start_sequence" c"start_stream"),
    methods!(Instances c"Psych".c"Parser": c"_native_parse" c"handler" c"initialize" c"parse"),
    methods!(Instances c"Psych".c"Handler": c"initialize"),
    methods!(Instances c"Psych".c"TreeBuilder": c"initialize" c"pop" c"push" c"scalar"),
    methods!(Instances c"Psych".c"Nodes".c"Node": c"children" c"end_column=" c"end_line=" c"initialize"
        c"start_column=" c"start_line=" c"tag" c"to_ruby"),
    methods!(Instances c"Psych".c"Nodes".c"Stream": c"children" c"encoding" c"initialize"),
    methods!(Instances c"Psych".c"Nodes".c"Document": c"children" c"implicit_end=" c"initialize" c"root" c"tag"
        c"to_ruby"),
    methods!(Instances c"Psych".c"Nodes".c"Mapping": c"anchor" c"children" c"initialize" c"tag"),
    methods!(Instances c"Psych".c"Nodes".c"Sequence": c"anchor" c"children" c"initialize" c"tag"),
    methods!(Instances c"Psych".c"Nodes".c"Scalar": c"anchor" c"initialize" c"plain" c"quoted"
        c"style" c"tag" c"value"),
    methods!(Instances c"Psych".c"Nodes".c"Alias": c"anchor" c"initialize"),
    methods!(Instances c"Psych".c"ClassLoader": c"date" c"find" c"initialize" c"load" c"path2class"
        c"resolve" c"symbol" c"symbolize"),
    methods!(Instances c"Psych".c"ClassLoader".c"Restricted": c"date" c"find" c"initialize" c"load"
        c"path2class" c"resolve" c"symbol" c"symbolize"),
    methods!(Instances c"Psych".c"ScalarScanner": c"class_loader" c"initialize" c"parse_int"
        c"parse_time" c"tokenize"),
    methods!(Instances c"Psych".c"Visitors".c"Visitor": c"accept" c"dispatch" c"initialize" c"visit"),
    methods!(Instances c"Psych".c"Visitors".c"ToRuby": c"accept" c"class_loader" c"deduplicate"
        c"deserialize" c"dispatch" c"initialize" c"merge_key" c"register" c"register_empty"
        c"resolve_class" c"revive_hash" c"visit" c"visit_Psych_Nodes_Alias"
        c"visit_Psych_Nodes_Document" c"visit_Psych_Nodes_Mapping" c"visit_Psych_Nodes_Scalar"
        c"visit_Psych_Nodes_Sequence"),
    methods!(Instances c"Psych".c"Visitors".c"NoAliasRuby": c"accept" c"class_loader" c"deduplicate"
        c"deserialize" c"dispatch" c"initialize" c"merge_key" c"register" c"register_empty"
        c"resolve_class" c"revive_hash" c"visit" c"visit_Psych_Nodes_Alias"
        c"visit_Psych_Nodes_Document" c"visit_Psych_Nodes_Mapping" c"visit_Psych_Nodes_Scalar"
        c"visit_Psych_Nodes_Sequence"),
];

const PSYCH_CORE: &[Methods] = &[
    methods!(Own c"Psych".c"Handlers".c"DocumentStream": c"new"),
    methods!(Own c"Psych".c"Parser": c"new"),
    methods!(Own c"Psych".c"Nodes".c"Stream": c"new"),
    methods!(Own c"Psych".c"Nodes".c"Document": c"new"),
    methods!(Own c"Psych".c"Nodes".c"Mapping": c"new" c"===" c"name"),
    methods!(Own c"Psych".c"Nodes".c"Sequence": c"new" c"===" c"name"),
    methods!(Own c"Psych".c"Nodes".c"Scalar": c"new" c"===" c"name"),
    methods!(Own c"Psych".c"Nodes".c"Alias": c"new" c"===" c"name"),
    methods!(Own c"Psych".c"ClassLoader": c"new"),
    methods!(Own c"Psych".c"ClassLoader".c"Restricted": c"new"),
    methods!(Own c"Psych".c"ScalarScanner": c"new"),
    methods!(Own c"Psych".c"Visitors".c"ToRuby": c"new"),
    methods!(Own c"Psych".c"Visitors".c"NoAliasRuby": c"new"),
    methods!(Instances c"Psych".c"ScalarScanner": c"Float" c"Integer"),
    methods!(Instances c"Psych".c"Visitors".c"ToRuby": c"class" c"is_a?" c"respond_to?"),
    methods!(Own c"Psych": c"block_given?"),
    methods!(Instances c"Psych".c"Nodes".c"Scalar": c"!" c"class" c"is_a?" c"respond_to?"),
    methods!(Instances c"Psych".c"Nodes".c"Mapping": c"!" c"class" c"is_a?" c"respond_to?"),
    methods!(Instances c"Psych".c"Nodes".c"Sequence": c"!" c"class" c"is_a?" c"respond_to?"),
    methods!(Instances c"Psych".c"Nodes".c"Alias": c"!" c"class" c"is_a?" c"respond_to?"),
    methods!(Instances c"BasicObject": c"!" c"!=" c"==" c"initialize"),
    methods!(Instances c"Kernel": c"freeze" c"initialize_dup" c"is_a?" c"respond_to?"),
    methods!(Own c"Class": c"new"),
    methods!(Instances c"Class": c"new"),
    methods!(Instances c"Module": c"===" c"name" c"to_s" c"inspect"),
    methods!(Own c"File": c"absolute_path" c"new" c"open" c"path"),
    methods!(Instances c"File": c"close" c"closed?" c"external_encoding" c"initialize" c"read"),
    methods!(Instances c"Array": c"!=" c"<<" c"==" c"[]" c"compact" c"each" c"each_slice" c"each_with_index"
        c"empty?" c"eql?" c"first" c"freeze" c"hash" c"include?" c"inspect" c"last" c"map" c"pop" c"push"
        c"reverse_each" c"size"),
    methods!(Instances c"Hash": c"==" c"[]" c"[]=" c"compare_by_identity" c"compare_by_identity?"
        c"default" c"default_proc" c"dup" c"each" c"empty?" c"eql?" c"fetch" c"freeze" c"hash"
        c"initialize_copy" c"inspect" c"key?" c"merge!"),
    methods!(Own c"Hash": c"new"),
    methods!(Instances c"String": c"+" c"-@" c"==" c"===" c"=~" c"[]" c"delete" c"empty?" c"eql?" c"freeze"
        c"gsub" c"hash" c"length" c"match" c"match?" c"split" c"sub" c"to_f" c"to_i" c"to_s" c"to_sym"),
    methods!(Instances c"Symbol": c"==" c"hash" c"inspect" c"to_proc" c"to_s"),
    methods!(Instances c"Regexp": c"===" c"=~" c"match" c"match?"),
    methods!(Instances c"Integer": c"*" c"**" c"+" c"-" c"==" c">" c"abs" c"div" c"eql?" c"hash"),
    methods!(Instances c"Float": c"*" c"+" c"-@" c"==" c"eql?" c"hash"),
    methods!(Instances c"NilClass": c"!" c"===" c"freeze" c"inspect" c"nil?" c"to_s"),
    methods!(Instances c"TrueClass": c"!" c"freeze" c"inspect"),
    methods!(Instances c"FalseClass": c"!" c"freeze" c"inspect"),
    methods!(Own c"Ractor": c"current"),
    methods!(Instances c"Ractor": c"[]" c"[]="),
];

const PSYCH_CONSTANTS: &[Constants] = &[
    constants!(: c"Psych" c"File" c"IO" c"String" c"Symbol" c"Array" c"Hash" c"Integer" c"Float"
        c"Object" c"Class" c"Module" c"Regexp" c"Ractor"),
    // A constant that is defined in one of these modules would precede the constant at the top level.
    constants!(c"Psych": c"ClassLoader" c"Handlers" c"Nodes" c"Parser" c"ScalarScanner" c"TreeBuilder"
        c"Visitors" c"File" c"Symbol" c"String" c"Hash" c"Array" c"Float" c"Ractor"),
    constants!(c"Psych".c"Handlers": c"DocumentStream"),
    constants!(c"Psych".c"Nodes": c"Alias" c"Document" c"Mapping" c"Scalar" c"Sequence" c"Stream"),
    constants!(c"Psych".c"Nodes".c"Node": c"Visitors" c"ToRuby"),
    constants!(c"Psych".c"Nodes".c"Scalar": c"ANY" c"PLAIN" c"SINGLE_QUOTED" c"DOUBLE_QUOTED" c"LITERAL"
        c"FOLDED"),
    constants!(c"Psych".c"Visitors": c"NoAliasRuby" c"ToRuby" c"Visitor" c"ClassLoader" c"ScalarScanner"
        c"Nodes" c"String" c"Hash" c"Array" c"Symbol" c"Psych"),
    constants!(c"Psych".c"Visitors".c"ToRuby": c"SHOVEL" c"ClassLoader" c"ScalarScanner" c"Nodes"
        c"String" c"Hash" c"Array" c"Symbol" c"Psych"),
    constants!(c"Psych".c"Visitors".c"Visitor": c"DISPATCH" c"Ractor" c"Visitor"),
    constants!(c"Psych".c"ClassLoader": c"CACHE" c"DATE" c"SYMBOL" c"Restricted"),
    constants!(c"Psych".c"ScalarScanner": c"FLOAT" c"INTEGER" c"INTEGER_STRICT" c"TIME" c"Float"
        c"Integer"),
];

const JSON_LIBRARY: &[Methods] = &[
    methods!(Own c"JSON".c"Parser": c"new" c"parse"),
    methods!(Instances c"JSON".c"Parser": c"initialize" c"parse"),
    methods!(Own c"JSON".c"ParserOptions": c"prepare"),
    methods!(Instances c"JSON".c"Ext".c"ParserConfig": c"initialize" c"parse"),
];

const JSON_CORE: &[Methods] = &[
    methods!(Instances c"Class": c"new"),
    methods!(Instances c"Module": c"inspect" c"name" c"to_s"),
    methods!(Instances c"Array": c"<<" c"initialize" c"inspect" c"push"),
    methods!(Instances c"Hash": c"[]" c"[]=" c"compare_by_identity?" c"default" c"default_proc"
        c"initialize" c"inspect" c"key?" c"to_hash"),
    methods!(Own c"Array": c"new"),
    methods!(Own c"Hash": c"new"),
    methods!(Instances c"Symbol": c"inspect"),
    methods!(Instances c"String": c"encoding" c"to_s" c"to_str"),
    methods!(Instances c"NilClass": c"!" c"inspect" c"nil?"),
    methods!(Instances c"TrueClass": c"inspect"),
    methods!(Instances c"FalseClass": c"inspect"),
];

const JSON_CONSTANTS: &[Constants] = &[
    constants!(: c"JSON"),
    constants!(c"JSON": c"Ext" c"Parser" c"ParserOptions"),
    constants!(c"JSON".c"Ext": c"Parser" c"ParserConfig"),
];
