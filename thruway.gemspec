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
  manifest = File.read("#{__dir__}/Cargo.toml")
  spec.homepage = manifest[/^homepage = "(.*)"$/, 1]
  spec.metadata = { "source_code_uri" => manifest[/^repository = "(.*)"$/, 1],
                    "rubygems_mfa_required" => "true" }
  spec.required_ruby_version = ">= 3.1"
  # `cargo x dist` says for which platform and Rubies a gem has its programs already.
  platform = ENV.fetch("THRUWAY_PLATFORM", nil)
  spec.platform = platform if platform
  rubies = ENV.fetch("THRUWAY_RUBIES", "").split
  spec.required_ruby_version = [">= #{rubies.first}", "< #{rubies.last.succ}.dev"] if rubies.any?
  spec.files = Dir.chdir(__dir__) do
    crates = "{benches,crates/*,xtask,gem/ext/thruway}"
    paths = Dir["#{crates}/{Cargo.toml,README.md,build.rs,extconf.rb,src/**/*}", "gem/exe/thruway",
                "gem/lib/**/*", "Cargo.{toml,lock}", "{README,CHANGELOG}.md", "LICENSE"]
    paths.reject! { |path| path.start_with?("Cargo") } if platform
    paths.select { |path| File.file?(path) }
  end
  spec.bindir = "gem/exe"
  spec.executables = ["thruway"]
  spec.extensions = ["gem/ext/thruway/extconf.rb"] unless platform
  # For `gem "thruway", path: …`: Bundler builds no extension of a folder, `make build` does.
  built = %w[target/release/gem target/debug/gem]
  built = built.find { |folder| File.directory?("#{__dir__}/#{folder}") }
  built = nil if defined?(Gem::Commands::BuildCommand)
  spec.require_paths = ["gem/lib", *built]
end
