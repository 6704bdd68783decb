# frozen_string_literal: true

require "preloading"

# Scripts outside the application that add their own folder to the load path. Their features are
# loaded in advance, and equal those of a plain run.
class PreloadLoadPathTest < Minitest::Test
  include Preloading

  SAYING = <<~'RUBY'
    require "mine"
    p MINE, $LOADED_FEATURES.grep(/mine/).sort, $LOAD_PATH.grep_v(/thruway|target/)
  RUBY

  # A tool whose feature `mine` requires another feature by name.
  def tool(made, name, folder = 'File.expand_path("lib", __dir__)', how: "unshift")
    made.write("../#{name}/lib/mine.rb", %(require "mine/inner"\nMINE = [INNER, __FILE__]\n))
    made.write("../#{name}/lib/mine/inner.rb", "INNER = '#{name}'\n")
    made.write("../#{name}/tool.rb", "$LOAD_PATH.#{how} #{folder}\n#{SAYING}")
  end

  def assert_forked(made, *words)
    plain = made.plain(*words)
    assert_predicate plain.status, :success?, plain.to_s
    2.times { assert_said plain, made.forked(*words), words.join(" ") }
  end

  def test_the_folder_of_a_script
    application do |made|
      tool(made, "one")
      tool(made, "two", how: "push")
      %w[one two].each { |name| assert_forked(made, "ruby", "../#{name}/tool.rb") }
      assert_forked(made, "ruby", "--disable-gems", "../one/tool.rb")
    end
  end

  def test_a_feature_of_that_folder_is_edited
    application do |made|
      tool(made, "one")
      assert_forked(made, "ruby", "../one/tool.rb")
      made.write("../one/lib/mine/inner.rb", "INNER = 'another'\n")
      assert_said made.plain("ruby", "../one/tool.rb"), made.preloaded("ruby", "../one/tool.rb")
    end
  end

  # The argument makes the command find another feature than the one loaded in advance.
  def test_a_folder_that_an_argument_chooses
    %w[unshift push].each do |how|
      application do |made|
        %w[one two].each { |name| tool(made, name, "File.expand_path(ARGV[0], __dir__)", how: how) }
        assert_forked(made, "ruby", "../one/tool.rb", "../one/lib")
        words = ["ruby", "../one/tool.rb", "../two/lib"]
        assert_said made.plain(*words), made.preloaded(*words)
      end
    end
  end
end
