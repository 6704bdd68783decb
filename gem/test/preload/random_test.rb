# frozen_string_literal: true

require "preloading"
require_relative "random_world"

# Random edits between the commands of random programs: a fork says what a plain run says.
# `cargo x prove preload --cases 100000` tries more of them.
class PreloadRandomTest < Minitest::Test
  include Preloading

  # Steps of one program.
  STEPS = 12

  def test_random_programs
    first = Integer(ENV.fetch("THRUWAY_SEED", "1"))
    count = Integer(ENV.fetch("THRUWAY_CASES", "48"))
    @start = @shown = now
    @steps = @forks = 0
    (first...(first + count.fdiv(STEPS).ceil)).each { |seed| go_through(seed) }
    # Edits that no boot looks at leave most templates alone; without forks nothing is proved.
    assert_operator @forks, :>, @steps / 8
  end

  # A stamp that is skipped: this test would see a template that compares too little.
  def test_what_is_not_compared_is_seen_to_differ
    differs = (1..12).any? do |seed|
      world = RandomWorld.new(random = Random.new(seed), skipped: "lib")
      Array.new(STEPS) { step(world, random, []) }.any? do |plain, said|
        plain.to_s != said.to_s
      end
    ensure
      world&.remove
    end
    assert differs
  end

  private

  def go_through(seed)
    world = RandomWorld.new(random = Random.new(seed))
    edits = []
    STEPS.times do
      compare(*step(world, random, edits), "seed #{seed}: #{edits.join(", ")}")
    end
  ensure
    world&.remove
  end

  # Each step may begin from a template, and may come right after an edit or some time after it.
  def step(world, random, edits)
    world.fork_now if random.rand(2).zero?
    random.rand(4).times { edits << world.edit }
    world.settle if random.rand(2).zero?
    world.both
  end

  def compare(plain, said, name)
    assert_said plain, said, "#{name}: #{said.how}"
    @steps += 1
    @forks += 1 if said.forked?
    progress
  end

  # A line every few seconds, if `cargo x prove` wants it.
  def progress
    return unless ENV["THRUWAY_PROGRESS"] && now - @shown >= 5

    @shown = now
    warn format("%d cases, %d forks, %.1f a second", @steps, @forks, @steps / (now - @start))
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
