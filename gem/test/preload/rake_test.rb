# frozen_string_literal: true

require "preloading"

# A boot may look at what Rake is to do: Rails before 7.1 and dotenv-rails choose the environment by
# the tasks. A template has booted with the command's tasks, or is not used.
class PreloadRakeTest < Minitest::Test
  include Preloading

  FILES = {
    "bin/rake" => <<~'RUBY',
      #!/usr/bin/env ruby
      require "rake"
      Rake.application.run
    RUBY
    "bin/rails" => <<~'RUBY',
      #!/usr/bin/env ruby
      require_relative "../lib/rails/commands"
    RUBY
    # As Rails runs the tasks of Rake: in an application of their own.
    "lib/rails/commands.rb" => <<~'RUBY',
      require "rake"
      Rake.with_application do |rake|
        rake.init("rails", ARGV.dup)
        rake.load_rakefile
        rake.top_level
      end
    RUBY
    "Rakefile" => <<~'RUBY',
      require_relative "config/application"
      %w[test test:models other].each do |name|
        task(name, [:first]) do |_, given|
          require_relative "config/environment"
          puts [ENVIRONMENT, ENV.fetch("RAILS_ENV", "none"), ENV.fetch("TEST", ""), *given].inspect
        end
      end
    RUBY
    # As Rails 6.1's test_unit/railtie.rb.
    "config/application.rb" => <<~'RUBY'
      if defined?(Rake.application) && Rake.application.top_level_tasks.grep(/^test(:|$)/).any?
        ENV["RAILS_ENV"] ||= Rake.application.options.show_tasks ? "development" : "test"
      end
      ENVIRONMENT = ENV.fetch("RAILS_ENV", "development")
    RUBY
  }.freeze

  COMMANDS = [
    %w[bin/rake test], %w[bin/rake test TEST=a.rb], %w[bin/rake other],
    %w[bin/rails test:models], %w[bin/rails test:models TEST=a.rb]
  ].freeze

  def test_the_environment_is_that_of_the_tasks
    with_rake do |made|
      COMMANDS.each do |words|
        plain = made.plain(*words)
        assert_predicate plain.status, :success?, plain.to_s
        assert_said plain, made.forked(*words), words.join(" ")
      end
      development = { "RAILS_ENV" => "development" }
      said = made.forked("bin/rake", "test", env: development)
      assert_said made.plain("bin/rake", "test", env: development), said
    end
  end

  # These have the key of `bin/rake test`, and other tasks or options.
  def test_a_command_with_other_tasks_or_options_boots
    with_rake do |made|
      [%w[bin/rake test[1]], %w[bin/rake -T test], %w[bin/rake --trace test]].each do |words|
        how = boots_after_all(made, words) { made.forked("bin/rake", "test") }
        assert_equal "booted after all: Rake's tasks or options differ", how
      end
      assert_said made.plain("bin/rake", "test"), made.forked("bin/rake", "test")
    end
  end

  # The child of `bin/rails` has another application of Rake than its template.
  def test_tasks_that_a_boot_defines_are_there
    with_rake do |made|
      made.write("config/application.rb", "ENVIRONMENT = 0\ntask(:own) { puts 1 }\n")
      made.write("lib/rails/commands.rb", "include Rake::DSL\n#{FILES["lib/rails/commands.rb"]}"
        .sub(/\A(.*\n)(require.*\n)/, "\\2\\1"))
      plain = made.plain("bin/rails", "own")
      assert_equal "1\n", plain.out, plain.to_s
      how = boots_after_all(made, %w[bin/rails own]) do
        made.preloaded("bin/rails", "own")
        assert_nil made.await_template
      end
      assert_match(/\Abooted after all: the tasks /, how)
    end
  end

  def test_a_boot_that_changes_what_rake_is_to_do_is_no_template
    with_rake do |made|
      made.write("config/application.rb", "Rake.application.options.trace = true\n")
      made.preloaded("bin/rake", "test")
      assert_equal "it changes what Rake is to do", made.await_template
    end
  end

  private

  # The reason why a command starts itself again, after the block has left a template. A template
  # that is too slow to answer on a busy machine is made anew.
  def boots_after_all(made, words)
    plain = made.plain(*words)
    Preloading.await("a boot after all of #{words.inspect}") do
      yield
      said = made.plain(THRUWAY, "run", "--preload", "--explain", "--", *words)
      # The client's line may come before the command's or after it.
      how = said.err[/booted after all: .*/]
      said.err.gsub!(/^thruway: .*\n/, "")
      assert_said plain, said, words.join(" ")
      next how if how

      made.thruway("preload", "stop")
      nil
    end
  end

  def with_rake
    skip_without("rake")
    application do |made|
      FILES.each { |name, text| made.write(name, text) }
      %w[bin/rake bin/rails].each { |name| File.chmod(0o755, made.path(name)) }
      yield made
    end
  end
end
