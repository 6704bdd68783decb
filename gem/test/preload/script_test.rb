# frozen_string_literal: true

require "preloading"

# A child continues with the script that its template's Ruby has opened.
class PreloadScriptTest < Minitest::Test
  include Preloading

  # Ruby reads a script in parts, and its first line before any file is loaded.
  def test_a_long_script_is_read_to_its_end
    application do |made|
      comments = "# comment\n" * 10_000
      text = "require_relative 'config/application'\n#{comments}p __LINE__, DATA.read\n"
      made.write("long.rb", "#{text}__END__\ndata\n")
      words = ["ruby", "long.rb"]
      3.times { assert_said made.plain(*words), made.forked(*words) }
    end
  end

  def test_a_script_is_edited
    application do |made|
      # Nothing else reads the script's folder.
      path = made.path("../said.rb")
      words = ["ruby", "../../said.rb"]
      [1, 2, 3].each do |number|
        File.write(path, "p #{number}\n")
        assert_said made.plain(*words, chdir: made.path("lib")),
                    made.preloaded(*words, chdir: made.path("lib"))
        made.forked(*words, chdir: made.path("lib"))
      end
    end
  end

  def test_a_script_that_is_the_standard_input
    application do |made|
      code = "p $0, ARGV"
      [["ruby"], ["ruby", "-", "a"]].each do |words|
        2.times do
          assert_said made.plain(*words, input: code), made.preloaded(*words, input: code)
          assert_includes made.await_template, "its script is its standard input"
        end
      end
    end
  end

  def test_ruby_says_its_version_each_time
    application do |made|
      made.write("said.rb", "puts 1\n")
      words = ["ruby", "-v", "said.rb"]
      made.preloaded(*words)
      assert_includes made.await_template, "Ruby prints its version"
      assert_said made.plain(*words), made.preloaded(*words)
    end
  end
end
