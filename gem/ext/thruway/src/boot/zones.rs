//! `TZInfo::DataSources::ZoneinfoReader#read`: the offsets and transitions of time zones are supplied from the pack.
//!
//! Rails reads all zones of the system when it loads an application eagerly. For each zone, TZInfo parses a file, and
//! computes the transitions of a hundred years. The pack stores the numbers in these objects. The objects are created
//! as TZInfo creates them, and the abbreviations go through TZInfo's own table of Strings. The pack is neither used nor
//! extended while one of the [methods](super::dependencies) that take part is not the library's own. ActiveSupport
//! replaces methods of `Time` that TZInfo calls; [their code](super::time_code) is a part of the entry's name.

use std::collections::HashSet;
use std::ffi::CStr;

use rb_sys::VALUE;
use thruway_boot::zone::{self, Offset, Transition, Zone};
use thruway_boot::{Boot, CachedDocument, Part};

use super::dependencies::{TZINFO, TZINFO_SOURCE};
use super::library::LibrarySlot;
use super::originals::Side;
use super::{current, time_code};
use crate::ruby::call::{call, send};
use crate::ruby::constants::{constant_at, module_at};
use crate::ruby::define::Method;
use crate::ruby::number::{from_i64, small};
use crate::ruby::object::{PlainClass, variable};
use crate::ruby::value::{Object, is_frozen, is_plain};
use crate::ruby::{Gvl, NIL, ProtectedCall, RArray, RString, Symbol, read_all};

static LIBRARY: LibrarySlot = LibrarySlot::new();
static SOURCES: LibrarySlot = LibrarySlot::new();

const SOURCE: &[&CStr] = &[c"TZInfo", c"DataSources", c"ZoneinfoDataSource"];
const READER: &[&CStr] = &[c"TZInfo", c"DataSources", c"ZoneinfoReader"];

/// Replaces methods of TZInfo, which has just been loaded.
pub(super) fn install(gvl: Gvl) {
    if current::boot().is_some_and(|boot| boot.options.has(Part::Zones)) {
        let read = [(c"read", Method::of_1(read))];
        let is_taken = LIBRARY.take(gvl, (READER, Side::Instances), &read, &TZINFO, None);
        if is_taken {
            let source = &[c"TZInfo", c"DataSource"];
            let load = [(c"eager_load!", Method::of_0(eager_load))];
            SOURCES.take(gvl, (source, Side::Instances), &load, &TZINFO_SOURCE, None);
        }
    }
}

/// `eager_load!` of a data source reads all zones, and drops the objects. Of these, only the abbreviations remain, in
/// the table of the source. So the objects are not created if the pack has all zones.
fn eager_load(ruby: ProtectedCall, source: VALUE) -> VALUE {
    let gvl = ruby.gvl();
    let is_done = abbreviations_of(gvl, source).and_then(|(classes, texts)| {
        texts.iter().try_for_each(|text| classes.deduplicate(gvl, text).map(|_| ()))?;
        // The table's code is Ruby code, during which other threads may run.
        (are_sources_unchanged(gvl) && variant_now(gvl).is_some()).then_some(())
    });
    if is_done.is_none() {
        return SOURCES.call(ruby, c"eager_load!", source, &[]);
    }
    let codes = call(ruby, source, Symbol::new(gvl, c"country_codes"), &[]);
    if let Some(codes) = RArray::of(gvl, codes) {
        let load = Symbol::new(gvl, c"load_country_info");
        for code in (0..).map_while(|place| codes.get(gvl, place)) {
            call(ruby, source, load, &[code]);
        }
    }
    NIL
}

fn are_sources_unchanged(gvl: Gvl) -> bool {
    let change = SOURCES.first_change(gvl);
    let is_unchanged = change.is_none();
    if let (Some(boot), Some(change)) = (current::boot(), change) {
        boot.counts.record_inactive_part(Part::Zones, change);
    }
    is_unchanged
}

/// The abbreviations of all zones of a data source, in the order in which TZInfo reads them; `None` if the pack does
/// not have all zones, or if methods of the program may take part.
fn abbreviations_of(gvl: Gvl, source: VALUE) -> Option<(ZoneClasses, Vec<&'static [u8]>)> {
    let boot = current::serving(gvl)?;
    let class = module_at(gvl, SOURCE)?.value();
    (is_plain(gvl, source, class) && are_sources_unchanged(gvl)).then_some(())?;
    let symbol = |name| Symbol::new(gvl, name);
    let classes = ZoneClasses::of(gvl, variable(gvl, source, symbol(c"@zoneinfo_reader")))?;
    let variant = variant_now(gvl)?.to_vec(gvl);
    let mut known = HashSet::new();
    let mut texts = Vec::new();
    for path in zone_paths(gvl, source)? {
        let CachedDocument::Hit(data) = boot.zone(&path, &variant) else { return None };
        let zone = Zone::decode(data)?;
        let of_zone = zone.offsets.iter().map(|offset| offset.abbreviation);
        texts.extend(of_zone.filter(|text| known.insert(*text)));
        boot.loaded(data);
    }
    Some((classes, texts))
}

/// The paths of all zones of a data source; `None` if TZInfo may find another path for an identifier.
fn zone_paths(gvl: Gvl, source: VALUE) -> Option<Vec<Vec<u8>>> {
    let own = |name| variable(gvl, source, Symbol::new(gvl, name));
    let folder = RString::utf8(gvl, own(c"@zoneinfo_dir"))?.to_vec(gvl);
    (folder.starts_with(b"/") && !folder.ends_with(b"/")).then_some(())?;
    let identifiers = RArray::exactly(gvl, own(c"@timezone_identifiers"))?;
    let identifiers = (0..).map_while(|place| identifiers.get(gvl, place)).map(|identifier| {
        let bytes = RString::utf8(gvl, identifier)?.to_vec(gvl);
        (is_frozen(gvl, identifier) && !bytes.starts_with(b"/")).then_some(bytes)
    });
    let identifiers = identifiers.collect::<Option<Vec<_>>>()?;
    // TZInfo finds an identifier in the list, which is sorted.
    let is_sorted = identifiers.is_sorted_by(|one, next| one < next);
    let path = |identifier: &Vec<u8>| [&folder[..], identifier].join(&b'/');
    is_sorted.then(|| identifiers.iter().map(path).collect())
}

fn read(ruby: ProtectedCall, reader: VALUE, path: VALUE) -> VALUE {
    let gvl = ruby.gvl();
    let read_by_library = || LIBRARY.call(ruby, c"read", reader, &[path]);
    let Some((boot, classes, path, variant)) = request(gvl, reader, path) else {
        return read_by_library();
    };
    let (path, variant) = (path.frozen(gvl), variant.frozen(gvl));
    match boot.zone(path.bytes(), variant.bytes()) {
        CachedDocument::Hit(data) => {
            let zone = Zone::decode(data).and_then(|zone| classes.create_objects(gvl, &zone));
            zone.unwrap_or_else(read_by_library)
        }
        CachedDocument::Uncacheable | CachedDocument::Unavailable => read_by_library(),
        CachedDocument::Miss(stamp) => {
            let objects = read_by_library();
            if variant_now(gvl).is_some_and(|now| is_same(gvl, now, variant.string())) {
                let data = classes.encode(gvl, objects);
                boot.learn_zone(path.bytes(), variant.bytes(), stamp, data);
            }
            objects
        }
    }
}

/// The boot, the classes, the file's path, and the variant: all other inputs on which the result depends.
fn request(
    gvl: Gvl,
    reader: VALUE,
    path: VALUE,
) -> Option<(&'static Boot, ZoneClasses, RString, RString)> {
    let boot = current::serving(gvl)?;
    let path = RString::plain(gvl, path)?;
    if !path.read(gvl, |path| path.starts_with(b"/")) {
        return None;
    }
    let classes = ZoneClasses::of(gvl, reader)?;
    Some((boot, classes, path, variant_now(gvl)?))
}

/// The way in which a file is read now; `None` if methods of the program may take part.
fn variant_now(gvl: Gvl) -> Option<RString> {
    let boot = current::boot()?;
    if let Some(change) = LIBRARY.first_change(gvl) {
        boot.counts.record_inactive_part(Part::Zones, change);
        return None;
    }
    let code = match time_code::digest(gvl) {
        Ok(code) => code,
        Err(change) => {
            boot.counts.record_inactive_part(Part::Zones, change);
            return None;
        }
    };
    let version = RString::of(gvl, constant_at(gvl, &[c"TZInfo", c"VERSION"])?)?;
    // TZInfo computes transitions up to a hundred years after the year in which it was loaded.
    let year = [c"TZInfo", c"DataSources", c"ZoneinfoReader", c"GENERATE_UP_TO"];
    let year = small(constant_at(gvl, &year)?)?;
    Some(RString::new(gvl, &zone::variant(&version.to_text(gvl), year, code)))
}

fn is_same(gvl: Gvl, one: RString, other: RString) -> bool {
    read_all(gvl, [one, other], |[one, other]| one == other)
}

/// The classes of a zone's objects, the names of their variables, and the table of abbreviations.
struct ZoneClasses {
    offset: PlainClass,
    transition: PlainClass,
    deduper: VALUE,
    base: Symbol,
    standard: Symbol,
    abbreviation: Symbol,
    observed: Symbol,
    begun: Symbol,
    ended: Symbol,
    at: Symbol,
}

impl ZoneClasses {
    /// The classes of the objects that a reader makes; `None` if the reader or its parts are not TZInfo's own.
    fn of(gvl: Gvl, reader: VALUE) -> Option<Self> {
        let class = |path| Some(module_at(gvl, path)?.value());
        let is_of = |object, path| Some(is_plain(gvl, object, class(path)?));
        let symbol = |name| Symbol::new(gvl, name);
        let deduper = variable(gvl, reader, symbol(c"@string_deduper"));
        let parser = variable(gvl, reader, symbol(c"@posix_tz_parser"));
        let is_own = is_of(reader, READER)?
            && is_of(parser, &[c"TZInfo", c"DataSources", c"PosixTimeZoneParser"])?
            && is_of(deduper, &[c"TZInfo", c"ConcurrentStringDeduper"])?
            && variable(gvl, parser, symbol(c"@string_deduper")) == deduper;
        is_own.then_some(())?;
        Some(Self {
            offset: PlainClass::of(gvl, class(&[c"TZInfo", c"TimezoneOffset"])?)?,
            transition: PlainClass::of(gvl, class(&[c"TZInfo", c"TimezoneTransition"])?)?,
            deduper,
            base: symbol(c"@base_utc_offset"),
            standard: symbol(c"@std_offset"),
            abbreviation: symbol(c"@abbreviation"),
            observed: symbol(c"@observed_utc_offset"),
            begun: symbol(c"@offset"),
            ended: symbol(c"@previous_offset"),
            at: symbol(c"@timestamp_value"),
        })
    }

    /// Creates the objects of a zone as TZInfo would: an Array of transitions, or a single offset.
    fn create_objects(&self, gvl: Gvl, zone: &Zone<'_>) -> Option<VALUE> {
        let offsets = RArray::with_room(gvl, zone.offsets.len());
        for offset in &zone.offsets {
            offsets.push(gvl, self.new_offset(gvl, offset)?);
        }
        if zone.transitions.is_empty() {
            return offsets.get(gvl, 0);
        }
        let transitions = RArray::with_room(gvl, zone.transitions.len());
        for transition in &zone.transitions {
            let begun = offsets.get(gvl, transition.offset)?;
            let ended = offsets.get(gvl, transition.previous)?;
            let at = from_i64(gvl, transition.at);
            let variables = [(self.begun, begun), (self.ended, ended), (self.at, at)];
            transitions.push(gvl, self.transition.allocate(gvl, &variables));
        }
        Some(transitions.value())
    }

    fn new_offset(&self, gvl: Gvl, offset: &Offset<'_>) -> Option<VALUE> {
        let text = self.deduplicate(gvl, offset.abbreviation)?;
        let variables = [
            (self.base, from_i64(gvl, offset.base)),
            (self.standard, from_i64(gvl, offset.standard)),
            (self.abbreviation, text),
            (self.observed, from_i64(gvl, offset.base.checked_add(offset.standard)?)),
        ];
        Some(self.offset.allocate(gvl, &variables))
    }

    /// The String of an abbreviation in TZInfo's table, which is extended if the abbreviation is new.
    fn deduplicate(&self, gvl: Gvl, text: &[u8]) -> Option<VALUE> {
        let new = RString::new(gvl, text);
        let known = send(gvl, self.deduper, c"dedupe", &[new.value()])?;
        (abbreviation(gvl, known)? == text).then_some(known)
    }

    /// Encodes the objects of a zone for the pack; `None` if TZInfo does not create such objects.
    fn encode(&self, gvl: Gvl, objects: VALUE) -> Option<Vec<u8>> {
        let mut found = FoundOffsets::default();
        let mut transitions = Vec::new();
        match RArray::exactly(gvl, objects) {
            None => {
                found.place(self, gvl, objects)?;
            }
            Some(list) => {
                (list.len(gvl) > 0 && !is_frozen(gvl, objects)).then_some(())?;
                for place in 0..list.len(gvl) {
                    transitions.push(self.transition_of(gvl, list.get(gvl, place)?, &mut found)?);
                }
            }
        }
        let offsets = found.numbers.iter().map(|(base, standard, abbreviation)| Offset {
            base: *base,
            standard: *standard,
            abbreviation,
        });
        Some(Zone { offsets: offsets.collect(), transitions }.encode())
    }

    fn transition_of(
        &self,
        gvl: Gvl,
        object: VALUE,
        found: &mut FoundOffsets,
    ) -> Option<Transition> {
        let is_own = is_plain(gvl, object, self.transition.value()) && !is_frozen(gvl, object);
        is_own.then_some(())?;
        Some(Transition {
            offset: found.place(self, gvl, variable(gvl, object, self.begun))?,
            previous: found.place(self, gvl, variable(gvl, object, self.ended))?,
            at: small(variable(gvl, object, self.at))?,
        })
    }
}

/// The offsets that transitions have named so far.
#[derive(Default)]
struct FoundOffsets {
    objects: Vec<VALUE>,
    numbers: Vec<(i64, i64, Vec<u8>)>,
}

impl FoundOffsets {
    /// Returns the place of an offset among those found so far. A new offset is added at the end. `None` if the object
    /// is not an offset as TZInfo creates it.
    fn place(&mut self, classes: &ZoneClasses, gvl: Gvl, object: VALUE) -> Option<usize> {
        if let Some(place) = self.objects.iter().position(|known| *known == object) {
            return Some(place);
        }
        let is_own = is_plain(gvl, object, classes.offset.value()) && !is_frozen(gvl, object);
        is_own.then_some(())?;
        let number = |name| small(variable(gvl, object, name));
        let (base, standard) = (number(classes.base)?, number(classes.standard)?);
        (number(classes.observed)? == base.checked_add(standard)?).then_some(())?;
        let text = abbreviation(gvl, variable(gvl, object, classes.abbreviation))?;
        self.objects.push(object);
        self.numbers.push((base, standard, text));
        Some(self.objects.len() - 1)
    }
}

/// The bytes of an abbreviation, which is a frozen String of UTF-8.
fn abbreviation(gvl: Gvl, text: VALUE) -> Option<Vec<u8>> {
    let string = RString::utf8(gvl, text)?;
    is_frozen(gvl, text).then(|| string.to_vec(gvl))
}
