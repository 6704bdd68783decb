# frozen_string_literal: true

require "booting"

# Many boots at the same time. Each meets a feature that the pack lacks, and writes a new pack.
# `cargo x prove storm --cases 10000` starts more boots.
class StormTest < Minitest::Test
  include Booting

  SWITCHES = ["--disable=gems"].freeze
  AT_ONCE = 8
  COMMON = 8
  # Few enough that a boot meets a feature that is already in its pack.
  RARE = 40
  MAIN = "#{COMMON}.times { |n| require \"common\#{n}\" }\nrequire \"rare/r\#{ARGV[0]}\"\n" \
         "puts $sum, $LOADED_FEATURES.grep(/app/).size\n".freeze

  def test_boots_while_the_pack_is_rewritten
    boots = Booting.cases(80)
    program(files) do |program|
      numbers = Queue.new(boots.times.to_a).close
      wrong = Array.new(AT_ONCE) { Thread.new { boot_all(program, numbers) } }.flat_map(&:value)
      assert_empty wrong.first(3), "#{wrong.size} of #{boots} boots went wrong"
      verified = Open3.capture2e(THRUWAY, "pack", "verify", program.pack)
      assert_match(/none damaged/, verified.first)
    end
  end

  private

  def files
    common = COMMON.times.to_h { |n| ["lib/common#{n}.rb", "$sum = ($sum || 0) + #{n}\n"] }
    rare = RARE.times.to_h { |n| ["lib/rare/r#{n}.rb", "$sum += #{n * 100}\n"] }
    { "main.rb" => MAIN, **common, **rare }
  end

  # Returns the wrong outputs of the boots of one thread.
  def boot_all(program, numbers)
    wrong = []
    while (number = numbers.pop)
      disturb(program, number)
      said = boot(program, number % RARE)
      right = "#{(0...COMMON).sum + (number % RARE * 100)}\n#{COMMON + 1}\n"
      wrong << "#{number}: #{said}" unless said == right
    end
    wrong
  end

  # Returns the output of a boot, including stderr.
  def boot(program, rare)
    words = [THRUWAY, "run", "--pack", program.pack, "--", RUBY, *SWITCHES, "-Ilib", "main.rb"]
    Open3.capture2e("timeout", "60", *words, rare.to_s, chdir: program.folder).first
  end

  # Now and then the pack is gone, or a feature has to be read anew.
  def disturb(program, number)
    FileUtils.rm_f(program.pack) if number % 16 == 7
    FileUtils.touch("#{program.folder}/lib/common#{number % COMMON}.rb") if number % 5 == 0
  end
end
