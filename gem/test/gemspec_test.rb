# frozen_string_literal: true

require "fileutils"
require "minitest/autorun"
require "open3"
require "tmpdir"

# The files that `gem build` puts into the gem, and the use of a checkout by Bundler.
class GemspecTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)

  def test_the_gem_holds_the_crates_of_its_extension
    Dir.mktmpdir do |folder|
      run_in ROOT, "gem", "build", "--silent", "thruway.gemspec", "-o", "#{folder}/thruway.gem"
      run_in folder, "gem", "unpack", "--quiet", "thruway.gem"
      whole = "#{folder}/thruway"
      # Every crate of the workspace is there, and every version is settled; what other systems
      # need may not have been downloaded.
      metadata = %w[cargo metadata --locked --offline --format-version 1 --filter-platform]
      run_in whole, *metadata, host
      assert_equal sources(ROOT), sources(whole)
    end
  end

  # A stand-in for Cargo that hands out the extension that is already built.
  CARGO = <<~SH
    #!/bin/sh
    test "$1" = build || exit 0
    mkdir -p "$CARGO_TARGET_DIR/release"
    cp "#{ROOT}/target/debug/libthruway_ext.so" "$CARGO_TARGET_DIR/release/"
    cp "${THRUWAY_COMMAND:-/bin/true}" "$CARGO_TARGET_DIR/release/thruway"
  SH

  def test_an_installed_gem_has_its_extension
    Dir.mktmpdir do |folder|
      install folder, "home"
      script = "require 'thruway'; require 'thruway/boot'; print Thruway::Boot.running?"
      environment = { "GEM_PATH" => "#{folder}/home", "THRUWAY_PACK" => "#{folder}/pack" }
      assert_equal "true", run_in(folder, environment, "ruby", "-e", script)
      assert_empty Dir["#{folder}/home/gems/*/gem/ext/thruway/target"]
    end
  end

  def test_an_installed_gem_brings_the_command
    Dir.mktmpdir do |folder|
      install folder, "home", "THRUWAY_COMMAND" => "#{ROOT}/target/debug/thruway"
      environment = { "GEM_HOME" => "#{folder}/home", "HOME" => folder }
      command = "#{folder}/home/bin/thruway"
      assert_equal "thruway #{version}\n", run_in(folder, environment, command, "--version")
      words = [command, "run", "--pack", "pack", "--", "ruby", "-e", "print :up"]
      assert_equal "up", run_in(folder, environment, *words)
      assert_path_exists "#{folder}/pack"
      library = "#{folder}/home/gems/thruway-#{version}/gem/lib"
      assert_match(/^ok +gem +#{library}$/, run_in(folder, environment, command, "doctor"))
    end
  end

  def test_the_command_of_a_gem_that_was_not_built_says_so
    out, said, status = Open3.capture3("ruby", "#{ROOT}/gem/exe/thruway", "--version")
    assert_equal ["", 1], [out, status.exitstatus]
    assert_match(/\Athruway: the gem has no command in .*\n\nhint: gem pristine thruway/, said)
  end

  # The layout after `cargo install` and `gem install`.
  def test_an_installed_program_finds_an_installed_gem
    Dir.mktmpdir do |folder|
      user = ".local/share/gem/ruby/#{RbConfig::CONFIG["ruby_version"]}"
      places = { "GEM_HOME" => "home", "GEM_PATH" => "other/gems", "HOME" => user }
      places.each_value { |place| install folder, place }
      FileUtils.mkdir_p("#{folder}/bin")
      FileUtils.cp("#{ROOT}/target/debug/thruway", "#{folder}/bin")
      places.each do |name, place|
        environment = { "HOME" => nil, name => "#{folder}/#{name == "HOME" ? "" : place}" }
        assert_boots_from folder, environment
      end
    end
  end

  # `gem install` puts the extension into two places, and so there are two copies of it.
  def test_both_ways_at_once_are_one_boot
    Dir.mktmpdir do |folder|
      install folder, "home"
      FileUtils.mkdir_p("#{folder}/bin")
      FileUtils.cp("#{ROOT}/target/debug/thruway", "#{folder}/bin")
      script = "require 'set'; require 'thruway/boot'; Thruway::Boot.save; " \
               "print Thruway::Boot.running?, File.size?('pack').nil?, Thruway::Boot.pack"
      words = ["bin/thruway", "run", "--pack", "pack", "--", "ruby", "-e", script]
      said = run_in folder, { "GEM_HOME" => "#{folder}/home" }, *words
      assert_equal "truefalse#{folder}/pack", said
    end
  end

  def test_a_gem_without_its_extension_is_none
    Dir.mktmpdir do |folder|
      install folder, "home"
      FileUtils.mkdir_p("#{folder}/bin")
      FileUtils.cp("#{ROOT}/target/debug/thruway", "#{folder}/bin")
      FileUtils.rm_r("#{folder}/home/extensions")
      environment = { "GEM_HOME" => "#{folder}/home", "HOME" => folder }
      words = %w[bin/thruway run -- ruby -e 0]
      _, said, status = Open3.capture3(environment, *words, chdir: folder)
      assert_predicate status, :success?
      assert_match(/\Athruway: the gem is not installed, so Ruby boots as always\n/, said)
    end
  end

  def test_a_ruby_that_it_was_not_built_for_boots_as_always
    environment = { "THRUWAY_EXTENSIONS" => "/nowhere", "THRUWAY_BOOT" => "explain",
                    "RUBYLIB" => "#{ROOT}/gem/lib/thruway/first" }
    out, said, = Open3.capture3(environment, "ruby", "-e", "print Gem::VERSION")
    assert_equal Gem::VERSION, out
    assert_match(/\Athruway: Ruby boots without the pack: the gem is not built for ruby/, said)
  end

  def test_bundler_finds_an_installed_gem
    Dir.mktmpdir do |folder|
      install folder, "home"
      File.write("#{folder}/Gemfile", "gem 'thruway', require: false\n")
      script = "require 'thruway/boot'; require 'bundler/setup'; print Thruway::Boot.running?"
      environment = { "GEM_HOME" => "#{folder}/home", "THRUWAY_PACK" => "#{folder}/pack" }
      [[], ["-rbundler/setup"]].each do |before|
        assert_equal "true", run_in(folder, environment, "ruby", *before, "-e", script)
      end
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

  def install(folder, home, environment = {})
    File.write("#{folder}/cargo", CARGO, perm: 0o755)
    run_in ROOT, "gem", "build", "--silent", "thruway.gemspec", "-o", "#{folder}/thruway.gem"
    path = { "PATH" => "#{folder}:#{ENV.fetch("PATH")}", **environment }
    words = %w[gem install --silent --local --no-document thruway.gem --install-dir]
    run_in folder, path, *words, home
  end

  # Asserts that a pack exists after a run, whatever Ruby prints.
  def assert_boots_from(folder, environment)
    FileUtils.rm_f("#{folder}/pack")
    run_in folder, environment, *%w[bin/thruway run --pack pack -- ruby -e 0]
    assert_path_exists "#{folder}/pack", environment.to_s
  end

  def run_in(folder, *words)
    environment = words.first.is_a?(Hash) ? words.shift : {}
    # Removes the variables of this process that affect Ruby.
    plain = { "RUBYOPT" => nil, "RUBYLIB" => nil, "BUNDLE_GEMFILE" => nil, **environment }
    out, err, status = Open3.capture3(plain, *words, chdir: folder)
    assert status.success?, "#{words.join(" ")}: #{err}"
    out
  end

  def host
    run_in(ROOT, "rustc", "--version", "--verbose")[/^host: (.*)/, 1]
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
