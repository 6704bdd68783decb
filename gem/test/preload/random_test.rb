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

  private

  def go_through(seed)
    world = RandomWorld.new(random = Random.new(seed))
    edits = []
    STEPS.times do
      world.fork_now if random.rand(2).zero?
      # Each step may begin from a template, and may be right after an edit or some time after it.
      random.rand(4).times { edits << world.edit }
      world.settle if random.rand(2).zero?
      compare(world, "seed #{seed}: #{edits.join(", ")}")
    end
  ensure
    world&.remove
  end

  def compare(world, name)
    plain, said = world.both
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
