# frozen_string_literal: true

require_relative "../booting"

# The events that a program gets for the files that it loads.
class EventTest < Minitest::Test
  include Booting

  # The folders in which Ruby finds `thruway/boot`.
  LIBRARY = $LOAD_PATH.grep(%r{gem(/lib)?\z}).map { |folder| "-I#{File.expand_path(folder)}" }

  MAIN = <<~RUBY
    require "thruway/boot"
    heard = []
    Thruway::Boot.on_event do |event, path, reason|
      require "c" if path.end_with?("a.rb")
      heard << [event, File.basename(path), reason].compact.join(" ")
    end
    require "a"
    require "b"
    Thruway::Boot.on_event
    require "d"
    puts heard
  RUBY

  def heard(program)
    said = program.run(switches: LIBRARY)
    assert_empty said.err
    said.out.lines(chomp: true)
  end

  def test_a_program_hears_what_came_from_the_pack_and_what_did_not
    files = %w[a b c d].to_h { |name| ["lib/#{name}.rb", "p if false\n"] }
    program({ "main.rb" => MAIN, **files }) do |program|
      names = %w[c.rb a.rb b.rb]
      assert_equal names.map { |name| "miss #{name} not in the pack" }, heard(program)
      assert_equal names.map { |name| "hit #{name}" }, heard(program)
      program.write("lib/b.rb", "p if nil && false\n")
      assert_equal ["hit c.rb", "hit a.rb", "stale b.rb changed since"], heard(program)
    end
  end

  def test_what_the_block_raises_ends_the_require
    main = <<~RUBY
      require "thruway/boot"
      Thruway::Boot.on_event { |*| raise "no" }
      begin
        require "a"
      rescue RuntimeError => e
        puts e.message
      end
      Thruway::Boot.on_event
      require "a"
    RUBY
    program({ "main.rb" => main, "lib/a.rb" => "puts :loaded\n" }) do |program|
      2.times { assert_equal "no\nloaded\n", program.run(switches: LIBRARY).out }
    end
  end
end
