# frozen_string_literal: true

require "booting"

# Packs with a damaged byte: a note at most, and the program runs. `cargo x prove damage` tries
# more of them.
class DamageTest < Minitest::Test
  include Booting

  FILES = {
    "main.rb" => "require 'a'\nrequire_relative 'lib/b'\nputs A, B.call, $LOADED_FEATURES\n",
    "lib/a.rb" => "A = %w[x y].map { |text| \"\#{text}!\" }\n", "lib/b.rb" => "B = -> { A.size }\n"
  }.freeze
  SWITCHES = ["--disable=gems"].freeze

  def test_a_flipped_byte_changes_nothing
    random = Random.new(SEED)
    program(FILES) do |program|
      plain = program.plain(*SWITCHES)
      whole = learned(program)
      Booting.cases(60).times do |number|
        # The header is small, and read first: every fourth flip is there.
        at = random.rand(number % 4 == 0 ? 80 : whole.size)
        damaged = whole.dup.tap { |bytes|
          bytes.setbyte(at, bytes.getbyte(at) ^ random.rand(1..255))
        }
        assert_harmless(program, plain, damaged, "byte #{at}, seed #{SEED}")
      end
    end
  end

  def test_a_pack_that_ends_early_or_goes_on
    program(FILES) do |program|
      plain = program.plain(*SWITCHES)
      whole = learned(program)
      [0, 1, 79, 80, whole.size / 2, whole.size - 1].each do |length|
        assert_harmless(program, plain, whole[0, length], "#{length} bytes")
      end
      assert_harmless(program, plain, whole + "\0", "one byte more")
    end
  end

  # A write beyond the limit sends a signal that ends a program.
  def test_a_pack_beyond_the_limit_of_file_sizes_is_not_written
    program(FILES) do |program|
      plain = program.plain(*SWITCHES)
      said = program.run(switches: SWITCHES, below: %w[prlimit --fsize=100])
      assert_equal [plain.out, 0], [said.out, said.status.exitstatus], said.err
      assert_match(/\Athruway: note: .*File too large/, said.err)
      assert_empty Dir.glob("#{program.pack}*")
    end
  end

  private

  def learned(program)
    program.run(switches: SWITCHES)
    assert_empty program.compiled
    File.binread(program.pack)
  end

  # Uses the pack unchanged, and frozen, so that the boot does not check the disk.
  def assert_harmless(program, plain, bytes, what)
    ["--trust-image", "--digest"].each do |option|
      FileUtils.rm_f(program.pack)
      File.binwrite(program.pack, bytes, perm: 0o444)
      said = program.run(option, switches: SWITCHES)
      assert_equal [plain.out, plain.status.exitstatus], [said.out, said.status.exitstatus], what
      assert_match(/\A(thruway: note: .*\n)?\z/, said.err, what)
    end
  end
end
