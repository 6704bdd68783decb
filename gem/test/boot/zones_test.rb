# frozen_string_literal: true

require "booting"
require "zone_files"

# Time zones, read by TZInfo: the program has the same objects with and without the pack, and a
# program that changes a method of TZInfo's, of ActiveSupport's or of Ruby's has its own results.
class ZonesTest < Minitest::Test
  include Booting

  parallelize_me!

  # Reads all zones, runs `$between`, and reads them again.
  MAIN = <<~'RUBY'
    require "tzinfo"
    TZInfo::DataSource.set(:zoneinfo, "#{__dir__}/zoneinfo")
    SOURCE = TZInfo::DataSource.get
    # Equal abbreviations are one String for all zones of a source.
    NUMBERS = {}.compare_by_identity

    def number(object) = NUMBERS[object] ||= NUMBERS.size

    def offset(object)
      values = object.instance_variables.map { |name| [name, object.instance_variable_get(name)] }
      text = object.abbreviation
      [number(object), object.class, object.frozen?, values,
       number(text), text.encoding, text.frozen?, text.valid_encoding?]
    end

    def transition(object)
      [object.class, object.frozen?, object.instance_variables, object.timestamp_value,
       offset(object.offset), offset(object.previous_offset), object.singleton_methods]
    end

    def zone(name)
      info = SOURCE.send(:load_timezone_info, name)
      puts "#{name}: #{info.class}"
      if info.respond_to?(:transitions)
        all = info.transitions
        puts [all.class, all.frozen?, all.size].inspect
        all.each { |one| puts transition(one).inspect }
      else
        puts offset(info.constant_offset).inspect
      end
    rescue StandardError => e
      puts "#{name}: #{e.class} #{e.message}".gsub(/0x\h+/, "")
    end

    def read_all = SOURCE.timezone_identifiers.each { |name| zone(name) }

    parsed = 0
    parsing = TracePoint.new(:call) do |at|
      parsed += 1 if at.method_id == :parse && at.defined_class.to_s.end_with?("ZoneinfoReader")
    end
    parsing.enable if File.exist?("#{__dir__}/count")
    read_all
    parsing.disable
    puts "parsed #{parsed}" if File.exist?("#{__dir__}/count")
    eval($between) if $between
    read_all
  RUBY

  WITH_RAILS = "require 'active_support'\nrequire 'active_support/core_ext/time'\n#{MAIN}".freeze

  PATCHES = {
    "the method itself" => <<~RUBY,
      READER.class_eval { def read(path) = raise(TZInfo::InvalidTimezoneIdentifier, path) }
    RUBY
    "the method itself, with the old one" => <<~RUBY,
      READER.class_eval do
        alias_method :old, :read
        def read(path) = old(path).then { |all| all.is_a?(Array) ? all.first(1) : all }
      end
    RUBY
    "a module in front" => <<~RUBY,
      READER.prepend(Module.new { def read(path) = super.then { |all| all.is_a?(Array) ? all.first(2) : all } })
    RUBY
    "an earlier step" => <<~RUBY,
      READER.class_eval { private def make_signed_int64(*) = 7 }
    RUBY
    "a rule" => <<~RUBY,
      TZInfo.const_get(:AnnualRules).prepend(Module.new { def transitions(year) = super.first(1) })
    RUBY
    "what a rule inherits" => <<~RUBY,
      TZInfo.const_get(:TransitionRule).class_eval do
        alias_method :old, :at
        def at(offset, year) = old(offset, year - 1)
      end
    RUBY
    "an offset" => <<~RUBY,
      class TZInfo::TimezoneOffset; def dst? = false; end
    RUBY
    "a transition's making" => <<~RUBY,
      class TZInfo::TimezoneTransition
        def initialize(offset, previous, at) = (@offset, @previous_offset, @timestamp_value = offset, previous, at + 1)
      end
    RUBY
    "a transition's variables" => <<~RUBY,
      TZInfo::TimezoneTransition.prepend(Module.new { def initialize(*) = (super; @more = 1) })
    RUBY
    "the table of abbreviations" => <<~RUBY,
      TZInfo.const_get(:ConcurrentStringDeduper).class_eval { def dedupe(text) = text.dup.freeze }
    RUBY
    "the year of the last transition" => <<~RUBY,
      READER.send(:remove_const, :GENERATE_UP_TO)
      READER.const_set(:GENERATE_UP_TO, 2040)
    RUBY
    "a class" => <<~RUBY,
      made = Class.new(TZInfo::TimezoneTransition)
      TZInfo.send(:remove_const, :TimezoneTransition)
      TZInfo.const_set(:TimezoneTransition, made)
    RUBY
    "a class that comes before the one at the top" => <<~RUBY,
      TZInfo.const_set(:Integer, Module.new { def self.===(_) = true })
    RUBY
    "opening" => <<~RUBY,
      def File.open(path, *, &) = super(path.sub(/Zone[0-4]/, "Zone5"), "rb", &)
    RUBY
    "reading" => <<~RUBY,
      class File; def read(*) = super&.tr("\\x0e", "\\x0f"); end
    RUBY
    "the addition of times" => <<~RUBY,
      class Time; alias old_plus +; def +(other) = old_plus(other + 60); end
    RUBY
    "the subtraction of times, in front" => <<~RUBY,
      Time.prepend(Module.new { def -(other) = other.is_a?(Integer) ? super(other + 60) : super })
    RUBY
    "the making of times" => <<~RUBY,
      class << Time; alias old_at at; def at(seconds, *rest, **) = old_at(seconds + 40_000_000, *rest); end
    RUBY
    "the making of TZInfo's own times" => <<~RUBY,
      def (TZInfo::TimeWithOffset).at(seconds, *rest, **) = super(seconds + 40_000_000, *rest)
    RUBY
    "what a time is" => "def Time.===(other) = !super",
    "the day of a week" => "class Time; def wday = 3; end",
    "an argument that is like a time" => <<~RUBY,
      class Integer; def comparable_time = self + 60; end
    RUBY
    "numbers" => "class Integer; def abs = 3600; end",
    "lists" => "class Array; def reverse_each = [].each; end",
    "a refinement" => <<~RUBY
      module Refined
        refine(TZInfo::TimezoneOffset) { def dst? = true }
      end
      using Refined
    RUBY
  }.freeze

  # Loads all zones at once, runs `$between`, loads them again, and reads each.
  AT_ONCE = MAIN.sub("parsed = 0\n", <<~'RUBY')
    def load_all
      loaded = 0
      loading = TracePoint.new(:call) { |at| loaded += 1 if at.method_id == :load_timezone_info }
      loading.enable if File.exist?("#{__dir__}/count")
      puts SOURCE.eager_load!.inspect
      loading.disable
      puts "loaded #{loaded}" if File.exist?("#{__dir__}/count")
    rescue StandardError => e
      puts "#{e.class} #{e.message}"
    end

    load_all
    eval($between) if $between
    load_all
    parsed = 0
  RUBY

  AT_ONCE_PATCHES = {
    "loading" => <<~RUBY,
      SOURCES.class_eval do
        alias_method :old_load, :load_timezone_info
        def load_timezone_info(name) = (puts name; old_load(name))
      end
    RUBY
    "loading, in front" => <<~RUBY,
      SOURCES.prepend(Module.new { def load_timezone_info(name) = (puts name; super) })
    RUBY
    "loading at once, in front" => <<~RUBY,
      TZInfo::DataSource.prepend(Module.new { def eager_load! = [super] })
    RUBY
    "loading at once" => "SOURCES.class_eval { def eager_load! = 7 }",
    "reading" => <<~RUBY,
      READER.prepend(Module.new { def read(path) = (puts File.basename(path); super) })
    RUBY
    "a step of reading" => "READER.class_eval { private def make_signed_int64(*) = 7 }",
    "a check of names" => <<~RUBY,
      TZInfo::DataSource.class_eval do
        def validate_timezone_identifier(name) = raise(TZInfo::InvalidTimezoneIdentifier, name)
      end
    RUBY
    "names" => <<~RUBY,
      SOURCES.class_eval { def timezone_identifiers = super.reverse }
    RUBY
    "the search for a name" => <<~RUBY,
      TZInfo::DataSource.class_eval { private def find_timezone_identifier(name) = (puts name; name) }
    RUBY
    "what becomes of a zone" => <<~RUBY,
      TZInfo::DataSources::TransitionsDataTimezoneInfo.class_eval do
        def initialize(name, all) = (puts name; super(name); @transitions = all.freeze)
      end
    RUBY
    "what becomes of any zone" => <<~RUBY,
      TZInfo::DataSources::TimezoneInfo.prepend(Module.new { def initialize(name) = (puts name; super) })
    RUBY
    "the class of a zone" => <<~RUBY,
      SOURCES.const_set(:TransitionsDataTimezoneInfo, Class.new(TZInfo::DataSources::TransitionsDataTimezoneInfo))
    RUBY
    "paths" => "def File.join(*parts) = super.tap { |path| puts path[/Zone.*/] }",
    "lists" => "class Array; def bsearch(&) = find(&).tap { |found| puts found.class }; end",
    "countries" => "SOURCES.class_eval { def load_country_info(code) = puts(code) }",
    "the table of abbreviations" => <<~RUBY,
      TZInfo.const_get(:ConcurrentStringDeduper).class_eval { def dedupe(text) = (puts text; text.dup.freeze) }
    RUBY
    "the list of a source" => <<~RUBY
      all = TZInfo::DataSource.get.instance_variable_get(:@timezone_identifiers)
      TZInfo::DataSource.get.instance_variable_set(:@timezone_identifiers, (all + ["None"]).sort.freeze)
    RUBY
  }.freeze

  AT_ONCE_PATCHES.each do |name, patch|
    define_method("test_#{name.tr(" ,", "_")}_at_once") do
      assert_patch(AT_ONCE, patch, wrong: false)
    end
  end

  # Those that ActiveSupport's own methods meet as well.
  IN_RAILS = PATCHES.keys.grep(/time/)

  PATCHES.each do |name, patch|
    define_method("test_#{name.tr(" ", "_")}") { assert_patch(MAIN, patch) }
  end

  IN_RAILS.each do |name|
    define_method("test_#{name.tr(" ", "_")}_in_Rails") { assert_patch(WITH_RAILS, PATCHES[name]) }
  end

  def setup
    tzinfo = "require 'tzinfo'; exit TZInfo::VERSION >= '2' && TZInfo.const_defined?(:AnnualRules)"
    skip "TZInfo 2 is not installed" unless system(RUBY, "-e", tzinfo, err: File::NULL)
  end

  def test_random_zones
    Booting.cases(4).times do |number|
      program(files(MAIN, ZoneFiles.new(Random.new(SEED + number), 24))) do |program|
        plain = assert_same(program)
        assert_includes plain.out, "Transitions"
        assert_includes plain.out, "ConstantOffset"
        assert_includes plain.out, "InvalidTimezoneIdentifier"
      end
    end
  end

  # A zone whose file is wrong is read each time, for the error.
  def test_zones_come_from_the_pack
    [MAIN, WITH_RAILS].each do |main|
      program(files(main)) do |program|
        program.write("count", "")
        plain = program.plain
        skip "ActiveSupport is not installed" if plain.err.include?("such file -- active_support")
        wrong = plain.out.scan("InvalidTimezoneIdentifier").size / 2
        refute_includes plain.out, "parsed #{wrong}\n"
        program.run
        said = program.run("--explain")
        assert_includes said.out, "parsed #{wrong}\n"
        refute_match(/zones was left to Ruby/, said.err)
        assert_includes program.run("--without", "zones").out, plain.out[/^parsed \d+$/]
      end
    end
  end

  def test_a_zone_that_changes
    program(files(MAIN)) do |program|
      before = program.plain
      2.times { assert_said before, program.run, "before" }
      program.write("zoneinfo/Zone0", File.binread("#{program.folder}/zoneinfo/Zone1"))
      program.age
      after = program.plain
      refute_equal before.out, after.out
      3.times { assert_said after, program.run, "after" }
      File.delete("#{program.folder}/zoneinfo/Zone1")
      gone = program.plain
      2.times { assert_said gone, program.run, "a zone is gone" }
    end
  end

  def test_all_zones_at_once
    [AT_ONCE, AT_ONCE.sub(/\A/, WITH_RAILS[/\A(?:require.*\n)+/])].each do |main|
      program(sound(main).merge("count" => "")) do |program|
        plain = program.plain
        skip "ActiveSupport is not installed" if plain.err.include?("such file -- active_support")
        refute_includes plain.out, "loaded 0\n"
        program.run
        said = program.run("--explain")
        assert_equal 2, said.out.scan("loaded 0\n").size, said.out
        refute_match(/zones was left to Ruby/, said.err)
        without = ->(text) { text.gsub(/^(loaded|parsed) \d+\n/, "") }
        assert_equal without[plain.out], without[said.out]
        assert_includes program.run("--without", "zones").out, plain.out[/^loaded \d+$/]
      end
    end
  end

  # A wrong zone raises, whether it was there before or not.
  def test_a_zone_that_changes_at_once
    program(sound(AT_ONCE)) do |program|
      before = program.plain
      3.times { assert_said before, program.run, "before" }
      zones = ["zoneinfo/Zone0", "zoneinfo/New"]
      changes = ["none", File.binread("#{program.folder}/zoneinfo/Zone1"), nil]
      zones.product(changes) do |zone, content|
        content ? program.write(zone, content) : File.delete("#{program.folder}/#{zone}")
        program.age
        after = program.plain
        3.times { assert_said after, program.run, "#{zone} with #{content.inspect}" }
      end
    end
  end

  # The pack of another year has other transitions.
  def test_the_year_counts
    program(files(MAIN)) do |program|
      later = "-r./later.rb"
      program.write("later.rb", <<~RUBY)
        now = Time.now
        Time.define_singleton_method(:now) { now + 86_400 * 366 * 3 }
        require "tzinfo"
        class << Time; remove_method :now; end
        Time.singleton_class.define_method(:now) { now }
      RUBY
      plain = [program.plain, program.plain(later)]
      refute_equal plain[0].out, plain[1].out
      2.times do
        assert_said plain[0], program.run, "this year"
        assert_said plain[1], program.run(switches: [later]), "another year"
      end
    end
  end

  # Each method that takes part is in one of the tables.
  def test_all_methods_between_are_watched
    folder = File.expand_path("../../ext/thruway/src/boot", __dir__)
    all = File.read("#{folder}/dependencies.rs")
    reading = all[/const TZINFO_LIBRARY.*?const TZINFO_CONSTANTS/m]
    at_once = all[/const TZINFO_SOURCE_LIBRARY.*?const TZINFO_SOURCE_CONSTANTS/m]
    loading = TRACE.sub("reader.read(path)", "SOURCE.send(:load_timezone_info, name)")
    [[MAIN, TRACE, reading], [WITH_RAILS, TRACE, reading],
     [MAIN, loading, reading + at_once]].each do |main, trace, tables|
      main = main.sub(/^read_all.*/m, trace)
      program(files(main).merge("tables.rs" => tables)) do |program|
        said = program.plain
        skip "ActiveSupport is not installed" if said.err.include?("such file -- active_support")
        assert_equal ["", ""], [said.out, said.err]
      end
    end
  end

  TRACE = <<~'RUBY'
    watched = File.read("tables.rs").scan(/methods!\(\s*(Own|Instances) ((?:c"\w+"\.?)+):((?:\s*c"[^"]+")+)\s*\)/m)
    watched = watched.flat_map do |side, path, names|
      path = path.scan(/c"(\w+)"/).join("::")
      # Earlier versions lack some.
      next [] unless Object.const_defined?(path)

      object = path.split("::").reduce(Object) { |outer, name| outer.const_get(name) }
      names.scan(/c"([^"]+)"/).filter_map do |(name)|
        method = side == "Own" ? object.method(name) : object.instance_method(name)
        [method.owner, name.to_sym]
      rescue NameError
        nil
      end
    end
    called = {}.compare_by_identity
    trace = TracePoint.new(:call, :c_call) { |at| (called[at.defined_class] ||= {})[at.method_id] = true }
    reader = SOURCE.instance_variable_get(:@zoneinfo_reader)
    SOURCE.timezone_identifiers.each do |name|
      path = "#{__dir__}/zoneinfo/#{name}"
      trace.enable { reader.read(path) }
    rescue StandardError
      nil
    end
    called = called.flat_map { |owner, names| names.keys.map { |name| [owner, name] } }
    # The code of these is compared by itself, and the table of abbreviations is asked anyway.
    time = %i[=== at at_with_coercion + - plus_with_duration minus_with_duration minus_with_coercion]
    called.reject! { |owner, name| [Time, Time.singleton_class].include?(owner) && time.include?(name) }
    called.reject! { |owner, name| name == :=== && owner.inspect == "#<Class:ActiveSupport::Duration>" }
    called.reject! { |owner, name| owner.to_s.match?(/Concurrent::|Mutex/) || %i[read synchronize].include?(name) }
    called.reject! { |owner, name| name == :untaint && owner.inspect.include?("UntaintExt") }
    # An error is never kept.
    called.reject! { |owner, _| owner.to_s.match?(/Exception|Error|Invalid|Warning/) }
    called.reject! { |_, name| %i[raise message exception backtrace to_s path inspect encode].include?(name) }
    (called - watched).each { |owner, name| puts "#{owner.inspect} #{name}" }
  RUBY

  private

  def files(main, zones = ZoneFiles.new(Random.new(SEED), 12))
    zones.to_h.merge("main.rb" => main)
  end

  # Files of a program without those zones that are wrong.
  def sound(main)
    all = files(MAIN)
    program(all) do |program|
      wrong = program.plain.out.scan(/^(\S+): TZInfo::InvalidTimezoneIdentifier/).flatten
      return all.except(*wrong.map { |name| "zoneinfo/#{name}" }).merge("main.rb" => main)
    end
  end

  def assert_patch(main, patch, wrong: true)
    patch = "READER = TZInfo::DataSources.const_get(:ZoneinfoReader)\n" \
            "SOURCES = TZInfo::DataSources::ZoneinfoDataSource\n#{patch}"
    rails = main[/\A(?:require.*\n)+/]
    zones = wrong ? files(main, ZoneFiles.new(Random.new(SEED), 6)) : sound(main)
    made = zones.merge("early.rb" => "#{rails}#{patch}\n",
                       "late.rb" => "$between = #{patch.inspect}\n")
    program(made) do |program|
      ways = [[], ["-r./late.rb"], ["-r./early.rb"]]
      plain = ways.to_h { |way| [way, program.plain(*way)] }
      skip "ActiveSupport is not installed" if plain[[]].err.include?("such file -- active_support")
      # There are two packs. The unchanged program writes the first, and the changed program the
      # second.
      [[[], *ways], [ways.last, ways.last, []]].each_with_index do |runs, number|
        runs.each do |way|
          run = program.run(switches: way, pack: "#{program.pack}.#{number}")
          assert_said plain[way], run, "#{way} in #{runs}:\n#{patch}"
        end
      end
    end
  end
end
