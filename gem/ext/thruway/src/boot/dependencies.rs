//! The methods that stand between a call of Psych, JSON or TZInfo and its result, for a document without tags.
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

pub(super) const TZINFO: Dependencies = Dependencies {
    feature: b"/tzinfo.rb",
    folder_ends_at: b".rb",
    library: TZINFO_LIBRARY,
    core: TZINFO_CORE,
    constants: TZINFO_CONSTANTS,
};

/// For `TZInfo::DataSource#eager_load!`, besides [`TZINFO`]: the methods around each zone that is read.
pub(super) const TZINFO_SOURCE: Dependencies = Dependencies {
    feature: b"/tzinfo.rb",
    folder_ends_at: b".rb",
    library: TZINFO_SOURCE_LIBRARY,
    core: TZINFO_SOURCE_CORE,
    constants: TZINFO_SOURCE_CONSTANTS,
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

const TZINFO_LIBRARY: &[Methods] = &[
    methods!(Instances c"TZInfo".c"DataSources".c"ZoneinfoReader": c"apply_rules_with_transitions"
        c"apply_rules_without_transitions" c"check_read" c"derive_offsets" c"find_existing_offset"
        c"make_signed_int32" c"make_signed_int64" c"offset_matches_rule?" c"parse"
        c"replace_with_existing_offsets" c"validate_and_fix_last_defined_transition_offset"),
    methods!(Instances c"TZInfo".c"DataSources".c"PosixTimeZoneParser": c"check_scan"
        c"get_offset_from_hms" c"get_seconds_after_midnight_from_hms" c"parse" c"parse_rule"),
    methods!(Instances c"TZInfo".c"AnnualRules": c"apply_rule" c"dst_end_rule" c"dst_offset"
        c"dst_start_rule" c"initialize" c"std_offset" c"transitions"),
    methods!(Instances c"TZInfo".c"AbsoluteDayOfYearTransitionRule":
        c"at" c"day_of_week" c"get_day" c"initialize" c"is_always_first_day_of_year?"
        c"is_always_last_day_of_year?" c"month" c"offset_start" c"seconds" c"transition_at"),
    methods!(Instances c"TZInfo".c"JulianDayOfYearTransitionRule":
        c"at" c"day_of_week" c"get_day" c"initialize" c"is_always_first_day_of_year?"
        c"is_always_last_day_of_year?" c"month" c"offset_start" c"seconds" c"transition_at"),
    methods!(Instances c"TZInfo".c"DayOfMonthTransitionRule":
        c"at" c"day_of_week" c"get_day" c"initialize" c"is_always_first_day_of_year?"
        c"is_always_last_day_of_year?" c"month" c"offset_start" c"seconds" c"transition_at"),
    methods!(Instances c"TZInfo".c"LastDayOfMonthTransitionRule":
        c"at" c"day_of_week" c"get_day" c"initialize" c"is_always_first_day_of_year?"
        c"is_always_last_day_of_year?" c"month" c"offset_start" c"seconds" c"transition_at"),
    methods!(Instances c"TZInfo".c"TransitionRule": c"initialize"),
    methods!(Instances c"TZInfo".c"DayOfWeekTransitionRule": c"initialize"),
    methods!(Instances c"TZInfo".c"DayOfYearTransitionRule": c"initialize"),
    methods!(Instances c"TZInfo".c"TimezoneOffset": c"==" c"abbreviation" c"base_utc_offset" c"dst?"
        c"initialize" c"observed_utc_offset" c"std_offset"),
    methods!(Instances c"TZInfo".c"TimezoneTransition": c"initialize" c"local_end_at" c"offset"
        c"previous_offset" c"timestamp_value"),
    methods!(Own c"TZInfo".c"Timestamp": c"for" c"for_time" c"new!"),
    methods!(Own c"TZInfo".c"TimestampWithOffset": c"new!" c"set_timezone_offset"),
    methods!(Instances c"TZInfo".c"Timestamp": c"initialize" c"initialize!" c"sub_second" c"value"),
    methods!(Instances c"TZInfo".c"TimestampWithOffset": c"initialize" c"initialize!" c"new_time"
        c"set_timezone_offset" c"sub_second" c"timezone_offset" c"to_time" c"utc?" c"utc_offset"
        c"value"),
    methods!(Instances c"TZInfo".c"TimeWithOffset": c"localtime" c"set_timezone_offset"),
    methods!(Own c"TZInfo".c"RubyCoreSupport": c"untaint"),
    methods!(Instances c"TZInfo".c"ConcurrentStringDeduper": c"dedupe"),
    methods!(Own c"StringScanner": c"new"),
    methods!(Instances c"StringScanner": c"[]" c"initialize" c"rest" c"rest?" c"scan"),
];

const TZINFO_CORE: &[Methods] = &[
    methods!(Instances c"BasicObject": c"!" c"!=" c"==" c"initialize"),
    methods!(Own c"Class": c"new"),
    methods!(Instances c"Class": c"allocate" c"new"),
    methods!(Instances c"Module": c"==="),
    methods!(Own c"TZInfo".c"AnnualRules": c"===" c"allocate" c"new"),
    methods!(Own c"TZInfo".c"TimezoneOffset": c"===" c"allocate" c"new"),
    methods!(Own c"TZInfo".c"TimezoneTransition": c"===" c"allocate" c"new"),
    methods!(Own c"TZInfo".c"TimestampWithOffset": c"===" c"allocate" c"new"),
    methods!(Own c"TZInfo".c"AbsoluteDayOfYearTransitionRule": c"===" c"allocate" c"new"),
    methods!(Own c"TZInfo".c"JulianDayOfYearTransitionRule": c"===" c"allocate" c"new"),
    methods!(Own c"TZInfo".c"DayOfMonthTransitionRule": c"===" c"allocate" c"new"),
    methods!(Own c"TZInfo".c"LastDayOfMonthTransitionRule": c"===" c"allocate" c"new"),
    methods!(Own c"TZInfo".c"Timestamp": c"block_given?" c"raise"),
    methods!(Own c"TZInfo".c"TimestampWithOffset": c"block_given?"),
    methods!(Instances c"TZInfo".c"TimestampWithOffset": c"kind_of?" c"send"),
    methods!(Instances c"TZInfo".c"TimezoneOffset": c"!" c"kind_of?"),
    methods!(Instances c"TZInfo".c"AnnualRules": c"!" c"kind_of?"),
    methods!(Own c"File": c"new" c"open"),
    methods!(Instances c"File": c"close" c"closed?" c"initialize" c"read" c"readline" c"seek"),
    methods!(Instances c"Array": c"!" c"+" c"<<" c"[]" c"[]=" c"concat" c"each" c"each_with_index"
        c"empty?" c"find" c"find_all" c"first" c"flat_map" c"index" c"kind_of?" c"length" c"map" c"reverse_each"
        c"shift" c"size"),
    methods!(Instances c"Enumerator": c"each" c"flat_map" c"initialize" c"map"),
    methods!(Instances c"Hash": c"!" c"[]" c"[]=" c"default" c"dup" c"eql?" c"fetch" c"hash" c"initialize_copy"
        c"initialize_dup"),
    methods!(Instances c"Integer": c"!" c"!=" c"%" c"&" c"*" c"+" c"-" c"-@" c"/" c"<" c"<<" c"<=" c"==" c"==="
        c">" c">=" c"abs" c"coerce" c"divmod" c"eql?" c"hash" c"is_a?" c"kind_of?" c"respond_to?"
        c"respond_to_missing?" c"succ" c"times" c"to_enum" c"to_i" c"upto" c"|"),
    methods!(Instances c"String": c"!" c"!=" c"==" c"===" c"[]" c"chomp!" c"dup" c"empty?" c"eql?"
        c"force_encoding" c"freeze" c"frozen?" c"hash" c"index" c"initialize_copy" c"kind_of?" c"length"
        c"to_i" c"unpack"),
    methods!(Instances c"Symbol": c"!" c"==" c"===" c"hash"),
    methods!(Instances c"NilClass": c"!" c"to_i"),
    methods!(Instances c"TrueClass": c"!" c"==" c"hash"),
    methods!(Instances c"FalseClass": c"!" c"==" c"hash"),
    methods!(Own c"Time": c"==" c"allocate" c"new"),
    methods!(Own c"TZInfo".c"TimeWithOffset": c"allocate" c"new"),
    methods!(Instances c"Time": c"initialize" c"kind_of?" c"localtime" c"mday" c"respond_to?" c"subsec" c"to_i"
        c"utc?" c"utc_offset" c"wday" c"year"),
    methods!(Instances c"TZInfo".c"TimeWithOffset": c"initialize" c"year"),
];

const TZINFO_CONSTANTS: &[Constants] = &[
    constants!(: c"Array" c"DateTime" c"Encoding" c"File" c"Hash" c"IO" c"Integer" c"Rational" c"String"
        c"StringScanner" c"Time" c"TZInfo"),
    constants!(c"Encoding": c"UTF_8"),
    // A constant that is defined in one of these modules would precede the constant at the top level.
    constants!(c"TZInfo": c"AbsoluteDayOfYearTransitionRule" c"AnnualRules" c"ConcurrentStringDeduper"
        c"DataSources" c"DayOfMonthTransitionRule" c"JulianDayOfYearTransitionRule"
        c"LastDayOfMonthTransitionRule" c"RubyCoreSupport" c"TimeWithOffset" c"Timestamp"
        c"TimestampWithOffset" c"TimezoneOffset" c"TimezoneTransition" c"DateTime" c"Encoding" c"File"
        c"IO" c"Integer" c"Rational" c"String" c"StringScanner" c"Time"),
    constants!(c"TZInfo".c"DataSources": c"AnnualRules" c"AbsoluteDayOfYearTransitionRule"
        c"DayOfMonthTransitionRule" c"Encoding" c"File" c"IO" c"JulianDayOfYearTransitionRule"
        c"LastDayOfMonthTransitionRule" c"PosixTimeZoneParser" c"RubyCoreSupport" c"String"
        c"StringScanner" c"TimezoneOffset" c"TimezoneTransition" c"ZoneinfoReader"),
    constants!(c"TZInfo".c"DataSources".c"ZoneinfoReader": c"AnnualRules" c"Encoding" c"File"
        c"GENERATE_UP_TO" c"IO" c"RubyCoreSupport" c"TimezoneOffset" c"TimezoneTransition"),
    constants!(c"TZInfo".c"DataSources".c"PosixTimeZoneParser": c"AbsoluteDayOfYearTransitionRule"
        c"AnnualRules" c"DayOfMonthTransitionRule" c"JulianDayOfYearTransitionRule"
        c"LastDayOfMonthTransitionRule" c"RubyCoreSupport" c"String" c"StringScanner"
        c"TimezoneOffset"),
    constants!(c"TZInfo".c"AnnualRules": c"TimezoneTransition"),
    constants!(c"TZInfo".c"TransitionRule": c"Integer" c"Timestamp" c"TimestampWithOffset"),
    constants!(c"TZInfo".c"AbsoluteDayOfYearTransitionRule": c"Time"),
    constants!(c"TZInfo".c"DayOfYearTransitionRule": c"Integer"),
    constants!(c"TZInfo".c"DayOfWeekTransitionRule": c"Integer"),
    constants!(c"TZInfo".c"DayOfMonthTransitionRule": c"Integer" c"Time"),
    constants!(c"TZInfo".c"JulianDayOfYearTransitionRule": c"LEAP" c"Time" c"YEAR"),
    constants!(c"TZInfo".c"LastDayOfMonthTransitionRule": c"Time"),
    constants!(c"TZInfo".c"TimezoneOffset": c"TimezoneOffset"),
    constants!(c"TZInfo".c"TimezoneTransition": c"TimestampWithOffset"),
    constants!(c"TZInfo".c"Timestamp": c"DateTime" c"Integer" c"Rational" c"Time" c"Timestamp"),
    constants!(c"TZInfo".c"TimestampWithOffset": c"TimeWithOffset"),
];

const TZINFO_SOURCE_LIBRARY: &[Methods] = &[
    methods!(Instances c"TZInfo".c"DataSources".c"ZoneinfoDataSource": c"data_timezone_identifiers"
        c"find_timezone_identifier" c"load_timezone_info" c"timezone_identifier_encoding"
        c"timezone_identifiers" c"try_with_encoding" c"validate_timezone_identifier"),
    // The reader's method is ours.
    methods!(Instances c"TZInfo".c"DataSources".c"ZoneinfoReader": c"read"),
    methods!(Instances c"TZInfo".c"DataSources".c"ConstantOffsetDataTimezoneInfo": c"initialize"),
    methods!(Instances c"TZInfo".c"DataSources".c"TransitionsDataTimezoneInfo": c"initialize"),
    methods!(Instances c"TZInfo".c"DataSources".c"DataTimezoneInfo": c"initialize"),
    methods!(Instances c"TZInfo".c"DataSources".c"TimezoneInfo": c"initialize"),
];

const TZINFO_SOURCE_CORE: &[Methods] = &[
    methods!(Own c"File": c"join"),
    methods!(Own c"TZInfo".c"DataSources".c"ConstantOffsetDataTimezoneInfo": c"allocate" c"new"),
    methods!(Own c"TZInfo".c"DataSources".c"TransitionsDataTimezoneInfo": c"allocate" c"new"),
    methods!(Instances c"TZInfo".c"DataSources".c"ZoneinfoDataSource": c"block_given?"),
    methods!(Instances c"TZInfo".c"TimezoneOffset": c"!" c"kind_of?"),
    methods!(Instances c"Array": c"!" c"bsearch" c"each" c"empty?" c"freeze" c"kind_of?" c"length"),
    methods!(Instances c"String": c"!" c"<=>" c"==" c">=" c"encoding" c"freeze" c"kind_of?"),
];

const TZINFO_SOURCE_CONSTANTS: &[Constants] = &[
    constants!(: c"Encoding" c"File" c"String"),
    constants!(c"TZInfo": c"Encoding" c"File" c"String" c"TimezoneOffset"),
    constants!(c"TZInfo".c"DataSources": c"ConstantOffsetDataTimezoneInfo" c"File" c"TimezoneOffset"
        c"TransitionsDataTimezoneInfo"),
    constants!(c"TZInfo".c"DataSources".c"ZoneinfoDataSource": c"ConstantOffsetDataTimezoneInfo" c"File"
        c"TimezoneOffset" c"TransitionsDataTimezoneInfo"),
];
