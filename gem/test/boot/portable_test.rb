# frozen_string_literal: true

require "booting"
require "installed"

# `--portable`: libruby's calls are left alone, as on systems where they cannot be answered.
class PortableTest < Minitest::Test
  include Booting
  include Installed

  FILES = { "main.rb" => "require 'a'\nrequire 'yaml'\np YAML.load_file('c.yml')\n",
            "lib/a.rb" => "require 'b'\n", "lib/b.rb" => "puts __FILE__.size\n",
            "c.yml" => "a: [1, 2]\n" }.freeze

  def test_code_and_documents_come_from_the_pack_though_no_call_is_answered
    program(FILES) do |program|
      2.times { program.run("--portable") }
      said = program.run("--portable", "--explain")
      assert_equal program.plain.out, said.out
      assert_match(/^thruway: in the portable mode: /, said.err)
      assert_match(/^thruway: \d\d+ features from the pack, 0 compiled$/, said.err)
      assert_match(/^thruway: 0 look-ups answered; /, said.err)
      shown = Open3.capture2(THRUWAY, "pack", "info", program.pack).first
      assert_equal "1", shown[/^yaml +(\d+)/, 1], shown
    end
  end

  # A C function adds the folder without a notice. `lib` comes first in the load path.
  def test_a_change_that_is_not_told_is_seen_by_the_next_look_up
    skip_without("fiddle")
    main = <<~'RUBY'
      require "fiddle"
      pointer = Fiddle::TYPE_VOIDP
      rename = Fiddle::Handle::DEFAULT["rename"]
      rename = Fiddle::Function.new(rename, [pointer, pointer], Fiddle::TYPE_INT)
      require "first"
      rename.call("aside/late.rb", "lib/late.rb")
      require "late"
      rename.call("lib/late.rb", "aside/late.rb")
    RUBY
    files = { "main.rb" => main, "second/first.rb" => "", "second/late.rb" => "puts :second\n",
              "aside/late.rb" => "puts :lib\n" }
    program(files) do |program|
      4.times do
        assert_equal "lib\n", program.run("--portable", switches: ["-Isecond"]).out
      end
    end
  end

  def test_what_is_to_be_frozen_is_compared_all_the_same
    program(FILES) do |program|
      2.times { program.run("--portable") }
      program.write("lib/b.rb", "puts :edited\n")
      said = program.run("--portable", "--frozen", "--explain")
      assert_match(/\Aedited\n/, said.out)
      assert_match(/^thruway: not frozen: /, said.err)
    end
  end

  def test_a_fork_of_a_template_is_refused_with_its_reason
    program(FILES) do |program|
      said = program.run("--portable", "--preload", "--explain")
      assert_match(/the portable mode cannot observe the queries of a boot/, said.err)
    end
  end
end
