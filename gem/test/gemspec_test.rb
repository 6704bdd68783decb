# frozen_string_literal: true

require "minitest/autorun"
require "open3"
require "tmpdir"

# What `gem build` puts into the gem, and what Bundler makes of a checkout.
class GemspecTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)

  def test_the_gem_holds_the_crates_of_its_extension
    Dir.mktmpdir do |folder|
      run_in ROOT, "gem", "build", "--silent", "thruway.gemspec", "-o", "#{folder}/thruway.gem"
      run_in folder, "gem", "unpack", "--quiet", "thruway.gem"
      whole = "#{folder}/thruway"
      # Every crate of the workspace is there, and every version is settled.
      run_in whole, "cargo", "metadata", "--locked", "--offline", "--format-version", "1"
      assert_equal sources(ROOT), sources(whole)
    end
  end

  def test_bundler_finds_the_gem_in_a_checkout
    Dir.mktmpdir do |folder|
      File.write("#{folder}/Gemfile", "gem 'thruway', path: #{ROOT.dump}\n")
      script = "require 'thruway'; print Thruway::VERSION, *$LOADED_FEATURES.grep(/names.rb/)"
      extension = "#{ROOT}/target/debug/gem"
      said = run_in folder, "ruby", "-rbundler/setup", "-I#{extension}", "-e", script
      assert_equal "#{version}#{ROOT}/gem/lib/thruway/names.rb", said
    end
  end

  private

  def run_in(folder, *words)
    # What this process was started with is no business of theirs.
    plain = { "RUBYOPT" => nil, "RUBYLIB" => nil, "BUNDLE_GEMFILE" => nil }
    out, err, status = Open3.capture3(plain, *words, chdir: folder)
    assert status.success?, "#{words.join(" ")}: #{err}"
    out
  end

  # Cargo and Ruby have the same version.
  def version
    File.read("#{ROOT}/Cargo.toml")[/^version = "(.*)"$/, 1]
  end

  def sources(folder)
    found = Dir.glob("{crates/*/src,gem/ext/thruway/src,gem/lib}/**/*", base: folder)
    found.select { |path| File.file?("#{folder}/#{path}") }.sort
  end
end
