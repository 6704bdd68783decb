# frozen_string_literal: true

require "booting"

# Constants that load their features.
class AutoloadTest < Minitest::Test
  include Booting

  def test_constants_load_their_features
    libraries = {
      "one.rb" => "ONE = 1\n", "outer/two.rb" => "module Outer; Two = 2; end\n",
      "none.rb" => "puts :nothing_defined\n", "bad.rb" => "raise 'bad'\n"
    }
    assert_same_program(<<~RUBY, **libraries)
      autoload :ONE, "one"
      module Outer; autoload :Two, "outer/two"; end
      autoload :None, "none"
      autoload :Bad, "bad"
      autoload :Missing, "nowhere"
      p autoload?(:ONE), Outer.autoload?(:Two), ONE, autoload?(:ONE), Outer::Two
      %i[None Bad Missing].each do |name|
        Object.const_get(name)
      rescue LoadError, StandardError => e
        p e.class, e.message, e.backtrace
      end
      p autoload?(:Bad), defined?(Bad)
      puts $LOADED_FEATURES
    RUBY
  end

  def test_eight_threads_meet_at_one_constant
    assert_same_program(<<~RUBY, "slow.rb" => "puts :once\nsleep 0.02\nmodule Slow; N = 7; end\n")
      autoload :Slow, "slow"
      p Array.new(8) { Thread.new { Slow::N } }.map(&:value)
      puts $LOADED_FEATURES
    RUBY
  end

  ZEITWERK = <<~RUBY
    require "zeitwerk"
    loader = Zeitwerk::Loader.new
    loader.push_dir("\#{__dir__}/app")
    loader.enable_reloading
    loader.on_load { |path, value| p [path, value] }
    loader.setup
    p Admin::User::ROLE, Admin.constants.sort, Object.autoload?(:Post)
    loader.reload
    p Admin::User::ROLE
    loader.eager_load
    p Post.new.title
    puts $LOADED_FEATURES.grep(/app/)
  RUBY

  def test_zeitwerk
    files = {
      "main.rb" => ZEITWERK, "app/post.rb" => "class Post; def title = Admin::User.name; end\n",
      "app/admin/user.rb" => "class Admin::User; ROLE = :admin; end\n"
    }
    program(files) do |program|
      said = assert_same(program)
      skip "zeitwerk is not installed" if said.err.include?("such file -- zeitwerk")
      assert_predicate said.status, :success?, said.err
      assert_empty program.compiled
    end
  end
end
