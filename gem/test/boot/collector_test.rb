# frozen_string_literal: true

require "booting"

# `--gc-after`: no garbage is collected before the program has allocated the given number of
# megabytes.
class CollectorTest < Minitest::Test
  include Booting

  GARBAGE = <<~RUBY
    before = GC.count
    100_000.times { "x" * 100 }
    puts GC.count > before
  RUBY

  def test_garbage_is_collected_after_so_many_megabytes
    skip_if_portable "collects as always"
    program("main.rb" => GARBAGE) do |program|
      assert_equal "true\n", program.plain.out
      assert_equal "false\n", program.run("--gc-after", "1000").out
      assert_equal "true\n", program.run("--gc-after", "1").out
    end
  end

  # No object allocates memory of its own. The pages that contain the objects count.
  def test_small_objects_count
    skip_if_portable "collects as always"
    objects = GARBAGE.sub("100_000", "500_000").sub('"x" * 100', "Object.new")
    program("main.rb" => objects) do |program|
      assert_equal "true\n", program.run("--gc-after", "10").out
      assert_equal "false\n", program.run("--gc-after", "1000").out
    end
  end

  # The addresses that YJIT reserves for its code are no garbage.
  def test_code_of_yjit_does_not_count
    skip_if_portable "collects as always"
    skip "this Ruby has no YJIT" unless system(RUBY, "--yjit", "-e", "", err: File::NULL)

    program("main.rb" => GARBAGE) do |program|
      assert_equal "false\n", program.run("--gc-after", "1000", switches: %w[--yjit]).out
    end
  end

  def test_a_program_that_switches_the_collector_has_its_way
    [%w[enable disable enable], %w[disable disable enable]].each do |calls|
      calls = calls.map { |call| "p GC.#{call}\n" }.join
      program("main.rb" => "#{calls}#{GARBAGE}GC.disable\n#{GARBAGE}") do |program|
        assert_said program.plain, program.run("--gc-after", "1000"), "with --gc-after"
      end
    end
  end

  # Ruby frees the descriptors of files that nobody refers to, and opens once more.
  def test_garbage_is_collected_when_descriptors_run_out
    files = <<~RUBY
      Process.setrlimit(:NOFILE, 64)
      500.times { File.open(__FILE__) }
      puts "opened"
    RUBY
    program("main.rb" => files) do |program|
      assert_said program.plain, program.run("--gc-after", "1000"), "with --gc-after"
      assert_equal "opened\n", program.plain.out
    end
  end

  def test_garbage_is_collected_when_memory_runs_out
    texts = <<~RUBY
      Process.setrlimit(:AS, (File.read("/proc/self/statm").to_i * 4096) + (400 << 20))
      100.times { "x" * (20 << 20) }
      puts "made"
    RUBY
    skip "takes /proc" unless File.exist?("/proc/self/statm")
    program("main.rb" => texts) do |program|
      assert_said program.plain, program.run("--gc-after", "4000"), "with --gc-after"
      assert_equal "made\n", program.plain.out
    end
  end
end
