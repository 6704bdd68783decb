//! Maps with a hash that is fast on small keys: some are looked up for every call.

use hashbrown::DefaultHashBuilder;

pub(super) type HashMap<K, V> = std::collections::HashMap<K, V, DefaultHashBuilder>;
pub(super) type HashSet<K> = std::collections::HashSet<K, DefaultHashBuilder>;
