# frozen_string_literal: true

require "booting"
require "trees"

# Random programs, and what becomes of them while they are edited: with the pack and without, they
# say the same. `cargo x prove trees` runs more of them.
class TreesTest < Minitest::Test
  include Booting

  EDITS = 4

  Booting.cases(10).times do |number|
    define_method("test_random_tree_#{SEED + number}") { follow(SEED + number) }
  end

  private

  def follow(seed)
    random = Random.new(seed)
    modes = random.rand(3).zero? ? [["--frozen"], []] : [[], ["--digest"]]
    switches = [["--disable=gems"], ["--disable=gems", "-w"], []][random.rand(3)]
    program({}) do |program|
      tree = Trees.new(program.folder, random, in_place: modes[0] == [])
      edits = []
      EDITS.times do
        # Files that were just written are not learned. Changes of learned files must be seen.
        program.age if random.rand(2).zero?
        compare(program, modes, switches,
                "seed #{seed} #{switches.join(" ")} after #{edits.inspect}")
        edits.concat(Array.new(random.rand(3)) { tree.edit })
      end
    end
  end

  def compare(program, modes, switches, when_)
    plain = program.plain(*switches)
    2.times do |time|
      options = modes[time]
      assert_said plain, program.run(*options, switches: switches), "#{options}: #{when_}"
    end
  end
end
