# frozen_string_literal: true

require_relative "gem/lib/thruway/version"

# It stands beside Cargo.toml, because the gem holds the crates that its extension is made of.
Gem::Specification.new do |spec|
  spec.name = "thruway"
  spec.version = Thruway::VERSION
  spec.authors = ["The Thruway maintainers"]
  spec.summary = "Ruby boots from one pack, and serves Rack applications, one turn per connection"
  spec.description = <<~TEXT.tr("\n", " ")
    `require` stops searching: names, compiled code, YAML and JSON come from one file.
    A Rack server in which no connection starves. From a name to its bytes with no stops.
  TEXT
  spec.license = "MIT"
  spec.required_ruby_version = ">= 3.1"
  spec.files = Dir.chdir(__dir__) do
    paths = Dir["{crates/*,xtask,gem/ext/thruway}/{Cargo.toml,README.md,extconf.rb,src/**/*}",
                "gem/lib/**/*.rb", "Cargo.{toml,lock}", "{README,CHANGELOG}.md", "LICENSE"]
    paths.select { |path| File.file?(path) }
  end
  spec.extensions = ["gem/ext/thruway/extconf.rb"]
  # For `gem "thruway", path: …`: Bundler builds no extension of a folder, `make build` does.
  built = defined?(Gem::Commands::BuildCommand) ? [] : ["target/release/gem"]
  spec.require_paths = ["gem/lib", *built]
end
