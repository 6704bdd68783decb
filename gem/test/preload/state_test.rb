# frozen_string_literal: true

require "preloading"

# Each command finds the changes that a boot has made to Ruby's own state, although Ruby's start
# comes after the fork.
class PreloadStateTest < Minitest::Test
  include Preloading

  def assert_found(initializer, code, env: {})
    application do |made|
      made.write("config/initializers/state.rb", initializer)
      words = ["bin/rails", "runner", code]
      plain = made.plain(*words, env: env)
      assert_predicate plain.status, :success?, plain.to_s
      2.times { assert_said plain, made.forked(*words, env: env), initializer }
    end
  end

  ENCODINGS = "p Encoding.default_external, Encoding.default_internal, STDIN.external_encoding, " \
              "STDOUT.external_encoding, STDERR.internal_encoding"

  def test_encodings
    code = <<~RUBY
      Encoding.default_external = Encoding.default_internal = "UTF-8"
      STDIN.binmode
      STDOUT.set_encoding("ISO-8859-1")
      STDERR.set_encoding("UTF-8", "ISO-8859-1")
    RUBY
    assert_found code, ENCODINGS, env: { "LC_ALL" => "C" }
    assert_found "Encoding.default_external = 'UTF-8'", ENCODINGS, env: { "LC_ALL" => "C" }
  end

  def test_a_seed_of_the_boots_own
    assert_found "srand(42); FIRST = rand(1000)",
                 "p FIRST, Random.seed, rand(1000), [*1..5].shuffle"
    assert_found "srand(7); 2000.times { rand }", "p rand, Random.bytes(3)"
  end

  def test_names_and_titles
    assert_found "$0 = 'renamed'", "p $0, File.read('/proc/self/cmdline').delete(%(\\0 ))"
    assert_found "Process.setproctitle('a title')",
                 "p $0, File.read('/proc/self/cmdline').delete(%(\\0 ))"
  end

  def test_globals_warnings_and_the_compilers_options
    # The script itself was compiled before it requested the application.
    assert_found <<~RUBY, "p $VERBOSE, $/, $;, Warning[:experimental]; p eval('%(a)').frozen?"
      $VERBOSE = nil
      $/ = "x"
      $; = ","
      Warning[:experimental] = false
      RubyVM::InstructionSequence.compile_option = { frozen_string_literal: true }
    RUBY
  end

  # In each of these ways the boot has read the variable, also through a C function or among all
  # variables.
  READS = ["ENV['%s']", "ENV.fetch('%s', nil)", "ENV.to_h['%s']", "ENV.map(&:itself).to_h['%s']",
           "ENV.key?('%s')"].freeze

  def test_variables_that_differ_from_one_command_to_the_next
    application do |made|
      %w[TERM OLDPWD].product(READS).each do |name, read|
        made.write("config/initializers/state.rb", "READ = #{format(read, name)}\n")
        words = ["bin/rails", "runner", "p READ"]
        made.forked(*words, env: { name => "/one" })
        ["/one", "/two", nil].each do |value|
          env = { name => value }
          assert_said made.plain(*words, env: env), made.preloaded(*words, env: env), read
        end
      end
    end
  end

  def test_a_variable_that_the_boot_does_not_read_is_no_reason_for_another_template
    application do |made|
      words = ["bin/rails", "runner", "p ENV['OLDPWD'], ENV.to_h['OLDPWD']"]
      made.forked(*words, env: { "OLDPWD" => "/one" })
      said = made.preloaded(*words, env: { "OLDPWD" => "/two" })
      assert_predicate said, :forked?
      assert_equal %("/two"\n"/two"\n), said.out
    end
  end
end
