//! A source file as its items: its definitions, the names it uses, and the lengths of its functions.

use std::fs;
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

/// A function, with the lines from its name to its end.
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) lines: usize,
}

/// A name that a file imports or re-exports.
pub(crate) struct Import {
    /// The path, including `crate`, `self` and `super`.
    pub(crate) path: Vec<String>,
    /// The name in the importing file.
    pub(crate) alias: String,
    /// Whether other files may import the name from this file.
    pub(crate) is_public: bool,
}

/// The code of one file, without its tests.
#[derive(Default)]
pub(crate) struct Source {
    /// The path below the crate's `src`.
    pub(crate) file: String,
    /// The module of the file: `a::b` as two names.
    pub(crate) module: Vec<String>,
    pub(crate) imports: Vec<Import>,
    /// Paths of two names or more in the code outside of imports, and single names.
    pub(crate) paths: Vec<Vec<String>>,
    pub(crate) functions: Vec<Function>,
}

/// Parses every file below `folder` except those for tests.
pub(crate) fn read(folder: &Path) -> Result<Vec<Source>, String> {
    let mut files = Vec::new();
    list(folder, &mut files);
    files.sort();
    files.iter().map(|path| parse(folder, path)).collect()
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            list(&path, files);
        } else if path.extension().is_some_and(|suffix| suffix == "rs")
            && path.file_stem().is_some_and(|stem| stem != "tests")
        {
            files.push(path);
        }
    }
}

fn parse(folder: &Path, path: &Path) -> Result<Source, String> {
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = fs::read_to_string(path).map_err(|error| told(&error))?;
    let tree = syn::parse_file(&text).map_err(|error| told(&error))?;
    let relative = path.strip_prefix(folder).unwrap_or(path);
    let mut module: Vec<String> = relative
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        module.pop();
    }
    let mut source = Source { file: relative.display().to_string(), module, ..Source::default() };
    source.visit_file(&tree);
    Ok(source)
}

/// Whether an item is compiled for tests alone.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let mut is_for_tests = attribute.path().is_ident("test");
        if attribute.path().is_ident("cfg") {
            let text = attribute.meta.require_list().map(|list| list.tokens.to_string());
            let text = text.unwrap_or_default();
            is_for_tests = text == "test" || text.starts_with("all (test") || text == "doctest";
        }
        is_for_tests
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Fn(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        _ => &[],
    }
}

impl Source {
    /// The top-level folder of the file, or the file's own name outside of folders; none for the root of the crate.
    pub(super) fn folder(&self) -> Option<&str> {
        self.module.first().map(String::as_str)
    }

    /// Adds each path of a `use` tree.
    fn add_use(&mut self, tree: &UseTree, path: &mut Vec<String>, is_public: bool) {
        let mut add = |path: &[String], name: String, alias: String| {
            let path = path.iter().cloned().chain([name]).collect();
            self.imports.push(Import { path, alias, is_public });
        };
        match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                self.add_use(&tree.tree, path, is_public);
                path.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(tree, path, is_public);
                }
            }
            UseTree::Name(tree) if tree.ident == "self" => {
                let alias = path.last().cloned().unwrap_or_default();
                self.imports.push(Import { path: path.clone(), alias, is_public });
            }
            UseTree::Name(tree) => add(path, tree.ident.to_string(), tree.ident.to_string()),
            UseTree::Rename(tree) => add(path, tree.ident.to_string(), tree.rename.to_string()),
            UseTree::Glob(_) => add(path, "*".into(), "*".into()),
        }
    }

    fn add_function(&mut self, name: &syn::Ident, block: &syn::Block) {
        let span = block.span();
        let lines = span.end().line + 1 - name.span().start().line.min(span.start().line);
        self.functions.push(Function { name: format!("{}: {name}", self.file), lines });
    }
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_public = !matches!(item.vis, Visibility::Inherited);
        self.add_use(&item.tree, &mut Vec::new(), is_public);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add_function(&function.sig.ident, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add_function(&function.sig.ident, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            let names = path.segments.iter().map(|segment| segment.ident.to_string());
            self.paths.push(names.collect());
        } else if let Some(segment) = path.segments.first() {
            self.paths.push(vec![segment.ident.to_string()]);
        }
        visit::visit_path(self, path);
    }
}
