//! Maps with a hash that is fast for small keys, since some are used for every call.

use hashbrown::DefaultHashBuilder;

pub(super) type HashMap<K, V> = std::collections::HashMap<K, V, DefaultHashBuilder>;
pub(super) type HashSet<K> = std::collections::HashSet<K, DefaultHashBuilder>;
