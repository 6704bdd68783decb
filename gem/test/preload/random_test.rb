# frozen_string_literal: true

require "preloading"
require_relative "random_world"

# Random edits between the commands of random programs: a fork says what a plain run says.
# `cargo x prove preload --cases 100000` tries more of them.
class PreloadRandomTest < Minitest::Test
  include Preloading

  # The number of steps of a program.
  STEPS = 64
  # The number of edits is mostly one, because a noticed edit would hide an unnoticed one.
  EDITS = [0, 0, 1, 1, 1, 2].freeze

  def test_random_programs
    first = Integer(ENV.fetch("THRUWAY_SEED", "1"))
    count = Integer(ENV.fetch("THRUWAY_CASES", "128"))
    @start = @shown = now
    @steps = @forks = 0
    (first...(first + count.fdiv(STEPS).ceil)).each { |seed| go_through(seed) }
    # Edits that no boot looks at leave most templates alone; without forks nothing is proved.
    assert_operator @forks, :>, @steps / 4
  end

  # A folder is skipped in comparisons, to show that this test detects a template that compares too
  # little.
  def test_what_is_not_compared_is_seen_to_differ
    differs = (1..12).any? do |seed|
      world = RandomWorld.new(seed, skipped: "lib")
      Array.new(STEPS) { step(world, []) }.any? { |plain, said| plain.to_s != said.to_s }
    ensure
      world&.remove
    end
    assert differs
  end

  # A world has RubyGems or has not, and templates are made in both.
  def test_there_are_forks_with_rubygems_and_without
    [RandomWorld::WITH_GEMS_EVERY, 1].each do |seed|
      world = RandomWorld.new(seed)
      assert_equal seed != 1, world.gems?
      said = Array.new(3) do
        world.wait_for_template
        world.both.last
      end
      assert said.last.forked?, said.last.how
    ensure
      world&.remove
    end
  end

  private

  def go_through(seed)
    world = RandomWorld.new(seed)
    edits = []
    STEPS.times { compare(world, *step(world, edits), "seed #{seed}: #{edits.join(", ")}") }
  ensure
    world&.remove
  end

  # Each step may begin from a template, and may come right after an edit or some time after it.
  def step(world, edits)
    world.wait_for_template unless world.one_in?(8)
    world.random_one(EDITS).times { edits << world.edit }
    world.settle unless world.one_in?(4)
    world.both
  end

  # A Ruby that is started anew has the last word, and is asked now and then anyway.
  def compare(world, plain, said, name)
    if plain.to_s != said.to_s || world.one_in?(16)
      started = world.started_anew
      assert_said started, said, "#{name}: #{said.how}"
      assert_said started, plain, "#{name}: the Ruby that waits for plain runs"
    end
    @steps += 1
    @forks += 1 if said.forked?
    progress
  end

  # Prints a line every few seconds, if `cargo x prove` requests progress.
  def progress
    return unless ENV["THRUWAY_PROGRESS"] && now - @shown >= 5

    @shown = now
    warn format("%d cases, %d forks, %.1f a second", @steps, @forks, @steps / (now - @start))
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
