# frozen_string_literal: true

require "booting"

# `$LOADED_FEATURES` grows in place, and a program's changes to it take effect at once.
class LoadedFeaturesTest < Minitest::Test
  include Booting

  EMPTY = (1..400).to_h { |number| ["f#{number}.rb", ""] }

  # Changes that a program may make to the array between two features.
  EDITS = [
    "$LOADED_FEATURES << '/nowhere/f300.rb'", "$LOADED_FEATURES.push('f301.rb')",
    "$LOADED_FEATURES.delete(File.expand_path('lib/f1.rb'))", "$LOADED_FEATURES.shift",
    "$LOADED_FEATURES.reject! { |path| path.end_with?('f2.rb') }", "$LOADED_FEATURES.pop",
    "$LOADED_FEATURES.replace($LOADED_FEATURES.dup)", "$LOADED_FEATURES.concat(['a', 'b'])",
    "$LOADED_FEATURES.sort!", "$LOADED_FEATURES.clear", "$kept.replace($LOADED_FEATURES)",
    "$kept = Array.new($LOADED_FEATURES)", "$kept = $LOADED_FEATURES.dup", "$kept.clear",
    "$kept = $LOADED_FEATURES[1..]; $kept << 1",
    "$kept = Class.new(Array).new($LOADED_FEATURES).to_a",
    "GC.start", "GC.compact if GC.respond_to?(:compact)"
  ].freeze

  def test_what_a_program_does_with_its_features
    cases = Booting.cases(4)
    random = Random.new(Booting::SEED)
    cases.times do
      steps = Array.new(60) { step(random) }
      assert_same_program(<<~RUBY, **EMPTY)
        $kept = []
        #{steps.map { |step| "begin; p((#{step}).class); rescue => e; p e; end" }.join("\n")}
        p $kept.size
        puts $LOADED_FEATURES, $LOAD_PATH
      RUBY
    end
  end

  def test_features_that_are_frozen
    assert_same_program(<<~RUBY, **EMPTY)
      require "f1"
      $LOADED_FEATURES.freeze
      2.times { |n| begin; p require("f\#{n + 1}"); rescue => e; p e; end }
      p $LOADED_FEATURES.last
    RUBY
  end

  # A copy for each of them would take 3 MB.
  def test_a_feature_is_added_without_a_copy_of_all_others
    skip_if_portable "cannot see that Ruby copies them"
    program("main.rb" => <<~RUBY) do |program|
      $LOADED_FEATURES.concat((1..1000).map { |number| "/nowhere/\#{number}.rb" })
      require "f1"
      GC.disable
      before = GC.stat(:malloc_increase_bytes)
      (2..400).each { |number| require "f\#{number}" }
      puts GC.stat(:malloc_increase_bytes) - before < 1_500_000
    RUBY
      EMPTY.each { |name, text| program.write("lib/#{name}", text) }
      program.age
      program.run
      assert_equal "true\n", program.run.out
    end
  end

  private

  def step(random)
    number = random.rand(1..400)
    loads = ["require 'f#{number}'", "require_relative 'lib/f#{number}'", "load 'f#{number}.rb'"]
    (random.rand(3).zero? ? EDITS : loads).sample(random: random)
  end
end
