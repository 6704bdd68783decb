# frozen_string_literal: true

require "booting"

# Ruby's heap begins with the size that it had at the end of an earlier boot: the program collects
# less garbage, and has all else as without the pack.
class HeapTest < Minitest::Test
  include Booting

  FEATURES = 220
  # A feature whose objects stay.
  FEATURE = "TEXTS_%<number>d = Array.new(500) { |index| \"text \#{index}\" }\n"
  LIBRARIES = FEATURES.times.to_h do |number|
    ["lib/f#{number}.rb", format(FEATURE, number: number)]
  end
  REQUIRES = "#{FEATURES}.times { |number| require \"f\#{number}\" }\n".freeze
  BEGAN = /^thruway: the heap began with \d+ slots more than Ruby's$/

  # The state of the collector, and hidden objects, at the start of a program and at its end.
  VISIBLE = <<~'RUBY'
    def visible
      zeros = ObjectSpace.each_object(String).count do |text|
        text.getbyte(0) == 0 && text.bytes.none?(&:positive?)
      end
      p [zeros, GC.stress, GC.enable, GC.disable, GC.enable, GC.measure_total_time]
    end
    visible
  RUBY

  def test_a_heap_begins_with_the_size_of_the_last_boot
    booted("#{REQUIRES}puts GC.count\n") do |program|
      with, without = [[], %w[--without heap]].map { |options| program.run("--explain", *options) }
      assert_match(BEGAN, with.err)
      refute_match(BEGAN, without.err)
      assert_operator Integer(with.out), :<, Integer(without.out)
    end
  end

  def test_the_size_is_written_once
    booted(REQUIRES) do |program|
      before = File.stat(program.pack)
      2.times { program.run }

      assert_equal before, File.stat(program.pack)
    end
  end

  def test_a_program_sees_nothing_but_the_counts
    booted("#{VISIBLE}#{REQUIRES}visible\n") do |program|
      assert_match BEGAN, program.run("--explain").err
      assert_said program.plain, program.run, "with a larger heap"
    end
  end

  def test_a_program_that_replaces_the_methods_of_the_collector_is_left_alone
    replaced = "def GC.stat_heap(*) = abort(\"asked\")\ndef GC.stat(*) = abort(\"asked\")\n"
    program({ "main.rb" => "#{replaced}#{REQUIRES}puts 1\n", **LIBRARIES }) do |made|
      4.times { assert_said made.plain, made.run, "with replaced methods" }
    end
  end

  def test_the_settings_of_the_user_and_limits_of_memory_are_respected
    booted(REQUIRES) do |program|
      assert_left program, "RUBY_GC_HEAP_GROWTH_FACTOR is set",
                  %w[env RUBY_GC_HEAP_GROWTH_FACTOR=1.7]
      assert_left program, "the memory of the process is limited",
                  ["sh", "-c", "ulimit -v 8000000; exec \"$@\"", "sh"]
    end
  end

  private

  # A program whose code and heap are in the pack.
  def booted(main)
    program({ "main.rb" => main, **LIBRARIES }) do |made|
      2.times { made.run }
      yield made
    end
  end

  def assert_left(program, reason, below)
    report = program.run("--explain", below: below).err

    assert_includes report, "thruway: the heap begins as Ruby decides, since #{reason}\n"
    refute_match BEGAN, report
  end
end
