# frozen_string_literal: true

require "booting"

# Programs that change Psych, JSON, RubyGems, or Ruby's own methods. The pack must give the results
# of the program's own methods, whichever program has written the pack.
class PatchesTest < Minitest::Test
  include Booting

  parallelize_me!

  # Reads everything in every way that the pack supports, runs `$between`, and reads everything
  # again.
  MAIN = <<~'RUBY'
    require "yaml"
    require "json"
    require "date"

    def show(name)
      puts "#{name}: #{yield.inspect}"[0, 200].gsub(/0x\h+/, "")
    rescue StandardError => e
      puts "#{name}: #{e.class} #{e.message}"[0, 200].gsub(/0x\h+/, "")
    end

    def read_all
      show("load_file") { YAML.load_file("a.yml", permitted_classes: [Symbol, Date]) }
      show("safe_load_file") { YAML.safe_load_file("a.yml", permitted_classes: [Date]) }
      show("unsafe_load_file") { YAML.unsafe_load_file("a.yml") }
      show("symbols") { YAML.unsafe_load_file("a.yml", symbolize_names: true, freeze: true) }
      show("load") { YAML.unsafe_load(File.read("a.yml")) }
      show("parse") { JSON.parse(File.read("a.json")) }
      show("parse symbols") { JSON.parse(File.read("a.json"), symbolize_names: true) }
      show("load_file") { JSON.load_file("a.json") }
      show("json load") { JSON.load(File.read("a.json")) }
      show("classes") { JSON.parse(File.read("a.json"), object_class: Made) }
      show("gemspec") { Gem::Specification.load("a.gemspec")&.then { |s| [s.name, s.summary] } }
    end

    # A class of the program's may take part in what JSON makes.
    class Made < Hash
      def []=(key, value)
        super(key, [$between, value])
      end
    end

    read_all
    require "x"
    eval($between) if $between
    read_all
    puts X
    puts $LOADED_FEATURES.grep(/lib.x.rb/).size
  RUBY

  GEMSPEC = <<~RUBY
    # -*- encoding: utf-8 -*-
    # stub: near 1 ruby lib

    Gem::Specification.new do |s|
      s.name = "near".freeze
      s.version = "1"
      s.summary = "as it is".freeze
      s.authors = ["-".freeze]
    end
  RUBY

  FILES = {
    "main.rb" => MAIN,
    "lib/x.rb" => "X = 'x'\n",
    "a.yml" => "a: 1\nb: [1.5, ~, yes, 2001-02-03, 'q', 1_000]\n:c: {d: \"e\"}\n:f: :g\n",
    "a.json" =>
      "{\"a\": [1, 2.5, null, true], \"b\": {\"c\": \"#{"long " * 400}\"}, \"d\": -1e3}\n",
    "a.gemspec" => GEMSPEC
  }.freeze

  MAKING = Mutex.new

  YAMLS = {
    "a singleton method" => "def Psych.load(*, **) = :patched",
    "an earlier step" => "def Psych.safe_load(*, **) = :patched",
    "the parser's door" =>
      "def Psych.parse(*, **) = Psych.parse_stream('- patched') { |node| return node }",
    "the method itself" => "def Psych.load_file(*, **) = :patched",
    "the method itself, with the old one" => <<~RUBY,
      class << Psych
        alias old_load_file load_file
        def load_file(*args, **how) = [:patched, old_load_file(*args, **how)]
      end
    RUBY
    "a module in front" => <<~RUBY,
      Psych.singleton_class.prepend(Module.new { def load(*) = [:patched, super] })
    RUBY
    "a module in front of the method itself" => <<~RUBY,
      Psych.singleton_class.prepend(Module.new { def load_file(*) = [:patched, super] })
    RUBY
    "an alias" => "class << Psych; alias load unsafe_load; end",
    "a method of another name" => <<~RUBY,
      Psych.define_singleton_method(:safe_load, Psych.method(:unsafe_load))
    RUBY
    "a refinement" => <<~RUBY,
      module Refined
        refine(Psych.singleton_class) { def load(*, **) = :patched }
      end
      using Refined
    RUBY
    "the scanner" => <<~RUBY,
      Psych::ScalarScanner.prepend(Module.new { def tokenize(text) = "patched \#{text}" })
    RUBY
    "the scanner's numbers" => <<~RUBY,
      class Psych::ScalarScanner; def parse_int(text) = text; end
    RUBY
    "the visitor" => <<~RUBY,
      class Psych::Visitors::ToRuby; def revive_hash(hash, *) = hash.merge!(patched: true); end
    RUBY
    "what the visitor inherits" => <<~RUBY,
      class Psych::Visitors::Visitor; def accept(target) = [:patched]; end
    RUBY
    "the visitor of safe loads" => <<~RUBY,
      class Psych::Visitors::NoAliasRuby; def accept(target) = [:patched, super]; end
    RUBY
    "the visitor's making" =>
      "def (Psych::Visitors::ToRuby).new(*) = Struct.new(:n) { def accept(_) = 1 }.new",
    "the class of the scanner" => <<~RUBY,
      Psych.send(:remove_const, :ScalarScanner)
      Psych::ScalarScanner = Class.new { def initialize(*); end; def tokenize(text) = text.upcase }
    RUBY
    "what numbers look like" => <<~RUBY,
      Psych::ScalarScanner.send(:remove_const, :INTEGER)
      Psych::ScalarScanner::INTEGER = /nothing/
    RUBY
    "a class that comes before the one at the top" => <<~RUBY,
      class Psych::File; def self.open(*) = :patched; end
    RUBY
    "the class of files" => <<~RUBY,
      Ours = Class.new(File) { def self.open(*) = :patched }
      Object.send(:remove_const, :File)
      File = Ours
    RUBY
    "opening" => "def File.open(*) = :patched",
    "reading" => "class IO; alias old read; def read(*) = old(*_1 = []) && '- patched'; end",
    "a node" => "class Psych::Nodes::Scalar; def value = 'patched'; end",
    "the tree" => "class Psych::TreeBuilder; def scalar(value, *rest) = super; end",
    "a core method" => "class String; def match?(*) = true; end",
    "numbers" => "module Kernel; def Integer(*) = 7; end",
    "dates" => "def Date.strptime(*) = :patched",
    "a tag for what has none" => "Psych.load_tags[nil] = 'Object'",
    "a domain" => "Psych.add_domain_type('example.org,2002', 'x') { :patched }",
    "symbols" => "class Psych::ClassLoader; def symbolize(name) = [:patched, name]; end",
    "an ancestor" => "class Object; def block_given? = false; end; module Psych; end"
  }.freeze

  JSONS = {
    "the method itself" => "def JSON.parse(*) = :patched",
    "a module in front" =>
      "JSON.singleton_class.prepend(Module.new { def parse(*) = [:patched, super] })",
    "an alias" => "class << JSON; def other(*) = :patched; alias parse other; end",
    "a method that calls the old one" => <<~RUBY,
      class << JSON
        alias old_parse parse
        def parse(*args) = [:patched, old_parse(*args)]
      end
    RUBY
    "the parser" => "JSON.parser = Class.new { def initialize(*, **); end; def parse = :patched }",
    "the constant" => <<~RUBY,
      JSON.send(:remove_const, :Parser)
      JSON::Parser = Class.new(JSON::Ext::Parser) { def parse = 1 }
    RUBY
    "the parser's work" => "class JSON::Ext::Parser; def parse = [:patched]; end",
    "the parser's making" => "def (JSON::Parser).new(*, **) = Struct.new(:parse).new(:patched)",
    "a module in front of the parser" => <<~RUBY,
      JSON::Ext::Parser.prepend(Module.new { def parse = [:patched, super] })
    RUBY
    "the defaults of load" => "JSON.load_default_options = { symbolize_names: true }",
    "the marker of classes" => "JSON.create_id = 'a'",
    "a refinement" => <<~RUBY,
      module Refined
        refine(JSON.singleton_class) { def parse(*) = :patched }
      end
      using Refined
    RUBY
    "reading" => "def File.read(*) = '[' + ('1,' * 900) + '2]'",
    "how options are shown" => "class Hash; def inspect = '{}'; end",
    "how classes are shown" => "def Made.inspect = 'Hash'"
  }.freeze

  OTHERS = {
    "the evaluation of gemspecs" => "module Kernel; def eval(*) = :patched; end",
    "the evaluation of gemspecs by RubyGems" => "def (Gem::Specification).eval(*) = :patched",
    "the loading of gemspecs" => "def (Gem::Specification).load(*) = nil",
    "the compiler" => <<~RUBY,
      iseq = RubyVM::InstructionSequence.compile("Gem::Specification.new { |s| s.name = 'patched' }")
      RubyVM::InstructionSequence.define_singleton_method(:compile) { |*| iseq }
      RubyVM::InstructionSequence.define_singleton_method(:load_from_binary) { |*| iseq }
    RUBY
    "the writer of code" => <<~RUBY,
      other = RubyVM::InstructionSequence.compile("X = 'patched'").to_binary
      RubyVM::InstructionSequence.define_method(:to_binary) { |*| other }
    RUBY
    "the loader of code" => <<~RUBY,
      def (RubyVM::InstructionSequence).load_iseq(path)
        compile(File.read(path).sub("'x'", "'patched'"), path, path) if path.end_with?("/x.rb")
      end
    RUBY
    "the loader of code, with the old one" => <<~RUBY
      RubyVM::InstructionSequence.singleton_class.prepend(Module.new do
        def load_iseq(path)
          code = super if defined?(super)
          return code unless path.end_with?("/x.rb")

          compile(File.read(path).sub("'x'", "'patched'"), path, path)
        end
      end)
    RUBY
  }.freeze

  { "yaml" => YAMLS, "json" => JSONS, "other" => OTHERS }.each do |group, patches|
    patches.each do |name, patch|
      define_method("test_#{group}_#{name.tr(" ", "_")}") { assert_patch(patch) }
    end
  end

  def test_a_program_that_changes_nothing_is_answered_from_the_pack
    program(FILES) do |program|
      program.run
      said = program.run("--explain")
      refute_match(/was left to Ruby/, said.err)
      shown = Open3.capture2(THRUWAY, "pack", "info", program.pack).first
      kinds = %w[features gemspecs yaml] + (PORTABLE.any? ? [] : %w[json])
      kinds.each { |kind| assert_match(/^#{kind} +[1-9]/, shown) }
    end
  end

  # Restored methods are the originals.
  def test_a_stub_that_ends
    stub = "old = Psych.method(:load)\ndef Psych.load(*, **) = :patched\nread_all\n" \
           "Psych.define_singleton_method(:load, old)"
    assert_patch(stub, late_only: true)
  end

  # Each method that takes part in a document without tags is watched: the method is in one of the
  # tables, or the boot has found it in the library's code.
  def test_all_methods_between_are_watched
    tables = File.expand_path("../../ext/thruway/src/boot/dependencies.rs", __dir__)
    program(FILES.merge("main.rb" => TRACE, "dependencies.rs" => File.read(tables))) do |program|
      said = program.plain
      assert_empty said.err
      said.out.each_line(chomp: true) { |method| assert_watched(method) }
    end
  end

  TRACE = <<~'RUBY'
    require "yaml"
    require "json"
    require "date"
    tables = File.read("dependencies.rs")
    watched = tables.scan(/methods!\((Own|Instances) ((?:c"\w+"\.?)+):((?:\s*c"[^"]+")+)\)/m)
    watched = watched.flat_map do |side, path, names|
      path = path.scan(/c"(\w+)"/).join("::")
      next [] unless Object.const_defined?(path)

      names.scan(/c"([^"]+)"/).filter_map do |(name)|
        object = Object.const_get(path)
        name = name.to_sym
        method = side == "Own" ? object.method(name) : object.instance_method(name)
        [method.owner, name]
      rescue NameError
        nil
      end
    end
    called = []
    trace = TracePoint.new(:call, :c_call) { |at| called |= [[at.defined_class, at.method_id]] }
    texts = ["a: 1\nb: [1.5, ~, yes, 2001-02-03, 'q', 0x10, .inf, 12:30, 1:2.5, 1e3]\n:c: &x {d: e}\n:h: :i\nf: *x\n" \
             "? [k]\n: |\n  text\n<<: *x\n"]
    texts << File.read("a.yml")
    # A key that is there twice is compared; others are where their hashes meet.
    texts << "? [k]\n: a\n? [k]\n: b\n? {l: m}\n: c\n? {l: m}\n: d\n1.5: e\n1.5: f\n7: g\n7: h\nn: 1\nn: 2\n"
    texts.each { |text| File.write("b.yml", text) }
    all = [Date, Symbol]
    read = lambda do |text|
      File.write("b.yml", text)
      trace.enable do
        YAML.load_file("b.yml", permitted_classes: all, aliases: true)
        YAML.safe_load_file("b.yml", permitted_classes: all, aliases: true, freeze: true)
        YAML.unsafe_load_file("b.yml", symbolize_names: true)
      end
    end
    texts.each(&read)
    trace.enable { YAML.safe_load_file("a.yml", permitted_classes: all) }
    json = File.read("a.json")
    trace.enable do
      JSON.parse(json)
      JSON.parse(json, symbolize_names: true, freeze: true)
      JSON.parse(json, object_class: Hash, array_class: Array)
    end
    # `load_file` and `parse` are compared by themselves, dates where one is made, and `require`
    # only brings what dates are.
    others = [Psych.singleton_class, JSON.singleton_class, Date.singleton_class, Monitor]
    called.reject! { |owner, name| others.include?(owner) && %i[load_file safe_load_file unsafe_load_file
      parse strptime enter exit mon_owned? mon_enter mon_exit synchronize].include?(name) }
    called.reject! { |owner, name| name == :require || owner.to_s.include?("Gem") || owner == Comparable }
    called.reject! { |owner, name| %i[load_tags domain_types].include?(name) }
    called.reject! { |owner, name| [Thread, Thread.singleton_class].include?(owner) || name == :create_id }
    (called - watched).each do |owner, name|
      puts "#{owner.inspect[/#<Class:(.*)>/, 1] || owner}#{owner.singleton_class? ? "." : "#"}#{name}"
    end
  RUBY

  private

  # If a program replaces the method with one that calls the original, Ruby reads the JSON.
  def assert_watched(method)
    owner, mark, name = method.partition(/[#.](?=[^#.]+\z)/)
    owner = "#{owner}.singleton_class" if mark == "."
    read = "JSON.parse(File.read('a.json'), object_class: Hash, array_class: Array)\n"
    patch = "old = instance_method(:'#{name}')\n" \
            "define_method(old.name) { |*all, &block| old.bind_call(self, *all, &block) }"
    main = "require 'json'\n#{read}#{owner}.class_eval do\n#{patch}\nend\n#{read}"
    program(FILES.merge("main.rb" => main)) do |program|
      program.run
      said = program.run("--explain").err
      assert_match(/json was left to Ruby, since .*#{Regexp.escape(name)} is not/, said, method)
    end
  end

  # Returns the unchanged program, its output, and the pack that it has written. All patches start
  # from them. Tests run at once, and the first one makes them.
  def unchanged
    MAKING.synchronize do
      @@unchanged ||= begin
        program = Program.new(FILES)
        Minitest.after_run { program.remove }
        plain = program.plain
        assert_said plain, program.run, "the first run"
        [program, plain, File.binread(program.pack)]
      end
    end
  end

  def assert_patch(patch, late_only: false)
    program, unchanged_plain, unchanged_pack = unchanged
    early = "require 'yaml'\nrequire 'json'\nrequire 'date'\n#{patch}\n"
    program.write("../#{name}/early.rb", early)
    program.write("../#{name}/late.rb", "$between = #{patch.inspect}\n")
    # The variants of the program: unchanged, changed halfway, and changed from the start.
    ways = [[], ["-r../#{name}/late.rb"]]
    ways << ["-r../#{name}/early.rb"] unless late_only
    plain = ways.to_h { |way| [way, way.empty? ? unchanged_plain : program.plain(*way)] }
    # There are two packs. The unchanged program has written the first, and the changed program
    # writes the second.
    program.write("../#{name}/0.pack", unchanged_pack)
    [ways, [ways.last, ways.last, []]].each_with_index do |runs, number|
      runs.each do |way|
        pack = "#{program.folder}/../#{name}/#{number}.pack"
        run = program.run(switches: way, pack: File.expand_path(pack))
        assert_said plain[way], run, "#{way} in #{runs}:\n#{patch}"
      end
    end
  end
end
