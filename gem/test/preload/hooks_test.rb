# frozen_string_literal: true

require "preloading"

# The hooks of an application around the forks of its template.
class PreloadHooksTest < Minitest::Test
  include Preloading

  REQUIRE = "require #{File.expand_path("../../lib/thruway/preload", __dir__).dump}\n".freeze
  HOOKS = REQUIRE + <<~'RUBY'
    $events = []
    Thruway::Preload.before_fork { $events << [:before, Process.pid] }
    Thruway::Preload.after_fork { $events << [:after, Process.pid] }
  RUBY
  CODE = "p $events.map(&:first), $events.map(&:last).map { |id| id == Process.pid }"

  def test_blocks_are_called_in_the_template_and_in_the_child
    application do |made|
      made.write("config/initializers/hooks.rb", HOOKS)
      words = ["bin/rails", "runner", CODE]
      assert_equal "[]\n[]\n", made.plain(*words).out
      assert_equal "[:before, :after]\n[false, true]\n", made.forked(*words).out
      # The block before a fork runs in the template, so its effects accumulate.
      second = made.forked(*words).out
      assert_equal "[:before, :before, :after]\n[false, false, true]\n", second
    end
  end

  def test_a_block_that_raises_leaves_the_command_to_a_boot
    application do |made|
      hook = "Thruway::Preload.before_fork { raise 'not now' }"
      made.write("config/initializers/hooks.rb", REQUIRE + hook)
      words = ["bin/rails", "runner", "puts 1"]
      made.preloaded(*words)
      made.await_template
      said = made.preloaded(*words)
      assert_equal "1\n", said.out, said.to_s
      assert_equal "booted, since RuntimeError: not now", said.how
    end
  end
end
