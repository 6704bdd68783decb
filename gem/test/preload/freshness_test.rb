# frozen_string_literal: true

require "preloading"

# A template is used only if a boot would find the disk and the environment as its own did.
class PreloadFreshnessTest < Minitest::Test
  include Preloading

  CODE = "load('app/models/said.rb'); p SAID_AT_BOOT, ENV['SAID'], Said.new.text"

  # A model, an initializer that reads files in several ways, and a locale.
  def with_said
    application do |made|
      made.write("app/models/said.rb", "class Said; def text = 'model 1'; end")
      made.write("config/locales/en.yml", "en:\n  said: locale 1\n")
      made.write("config/said.yml", "text: yaml 1\n")
      made.write("config/database.yml", "a: 1\n")
      made.write("lib/said.txt", "text 1")
      made.write("config/initializers/said.rb", <<~'RUBY')
        ROOT = File.expand_path("../..", __dir__)
        SAID_AT_BOOT = [
          YAML.load_file("#{ROOT}/config/said.yml"), File.read("#{ROOT}/lib/said.txt"),
          File.exist?("#{ROOT}/lib/extra.txt"), Dir.children("#{ROOT}/lib").sort,
          File.size(__FILE__), YAML.load_file("#{ROOT}/config/locales/en.yml"),
          File.read("#{ROOT}/config/database.yml"), File.file?("#{ROOT}/app/models/said.rb"),
          Dir.glob("#{ROOT}/app/models/*.rb").sort
        ]
      RUBY
      sleep 0.04
      yield made
    end
  end

  def assert_fresh(made, *words, env: {})
    words = ["bin/rails", "runner", *words, CODE]
    plain = made.plain(*words, env: env)
    assert_predicate plain.status, :success?, plain.to_s
    said = made.preloaded(*words, env: env)
    assert_said plain, said, said.how
    said
  end

  def forked(made) = made.forked("bin/rails", "runner", CODE)

  RAILS = "p Rails.env, I18n.t('said'), Said.new.text, ENV['RAILS_ENV'], ENV['BY_BOOT']"

  # Rails finds its models, locales and environments by itself.
  def test_edits_of_a_rails_application
    application(RailsApplication) do |made|
      made.write("app/models/said.rb", "class Said; def text = 'model 1'; end")
      made.write("config/locales/en.yml", "en:\n  said: locale 1\n")
      made.write("config/initializers/said.rb", "ENV['BY_BOOT'] = ENV['RAILS_ENV']")
      words = ["bin/rails", "runner", RAILS]
      made.forked(*words)
      # Editors save in this way. The template stays.
      made.write("app/models/.said.rb", "class Said; def text = 'model 2'; end")
      File.rename(made.path("app/models/.said.rb"), made.path("app/models/said.rb"))
      said = made.preloaded(*words)
      assert_equal [true, true], [said.forked?, said.out.include?("model 2")], said.to_s
      made.write("config/locales/en.yml", "en:\n  said: locale 2\n")
      assert_includes made.preloaded(*words).out, "locale 2"
      made.write("app/models/other.rb", "class Other; end")
      refute_predicate made.preloaded(*words), :forked?
      words.insert(2, "-e", "production")
      expected = %("production"\n"locale 2"\n"model 2"\n"production"\n"production"\n)
      assert_equal expected, made.forked(*words).out
    end
  end

  def test_a_file_that_is_only_looked_for_is_edited_and_the_template_stays
    with_said do |made|
      forked(made)
      made.write("app/models/said.rb", "class Said; def text = 'model 2'; end")
      said = assert_fresh(made)
      assert_predicate said, :forked?, said.how
      assert_includes said.out, "model 2"
      # Editors save in this way.
      File.write(made.path("app/models/.said.rb"), "class Said; def text = 'model 3'; end")
      File.rename(made.path("app/models/.said.rb"), made.path("app/models/said.rb"))
      said = assert_fresh(made)
      assert_predicate said, :forked?, said.how
      assert_includes said.out, "model 3"
    end
  end

  READ = { "config/said.yml" => "text: yaml 2\n", "lib/said.txt" => "text 2",
           "config/application.rb" => nil, "lib/extra.txt" => "", "config/initializers/zz.rb" => "",
           "app/models/other.rb" => "class Other; end", "config/database.yml" => nil }.freeze

  def test_what_the_boot_read_is_edited
    with_said do |made|
      READ.each do |name, text|
        forked(made)
        text ? made.write(name, text) : File.write(made.path(name), "\n", mode: "a")
        said = assert_fresh(made)
        refute_predicate said, :forked?, name
        assert_match(/has changed$/, said.how, name)
      end
    end
  end

  # Bundler 4 touches a lock file without checksums at each start.
  def test_a_lock_file_that_each_boot_touches_and_one_that_is_edited
    application do |made|
      made.write("Gemfile.lock", "GEM 1\n")
      made.write("config/initializers/lock.rb", <<~'RUBY')
        file = File.expand_path("../../Gemfile.lock", __dir__)
        LOCK = File.read(file)
        File.utime(nil, nil, file)
      RUBY
      words = ["bin/rails", "runner", "p LOCK"]
      made.forked(*words)
      made.plain(*words)
      said = made.preloaded(*words)
      assert_predicate said, :forked?, said.how
      made.write("Gemfile.lock", "GEM 2\n")
      said = made.preloaded(*words)
      assert_equal [false, %("GEM 2\\n"\n)], [said.forked?, said.out], said.how
      assert_match(/Gemfile\.lock has changed$/, said.how)
    end
  end

  # Writes a zone without summer time (tzfile(5)): one type of local time, and its name.
  def write_zone(path, hours)
    counts = [0, 0, 0, 0, 1, 4].pack("N*")
    File.binwrite(path, "TZif#{"\0" * 16}#{counts}#{[hours * 3600, 0, 0].pack("l>CC")}ABC\0")
  end

  # glibc reads the file without a call that the template observes.
  def test_the_file_of_the_time_zone_is_edited
    with_said do |made|
      code = "p Time.at(0).utc_offset"
      path = made.path("tmp/zone")
      [{ "TZ" => path }, { "TZ" => ":zone", "TZDIR" => made.path("tmp") }].each do |env|
        write_zone(path, 1)
        sleep 0.04
        words = ["bin/rails", "runner", code]
        assert_equal "3600\n", made.forked(*words, env: env).out
        write_zone(path, 2)
        said = made.preloaded(*words, env: env)
        assert_equal ["7200\n", false], [said.out, said.forked?], said.how
      end
    end
  end

  def test_a_variable_is_named_that_differs
    with_said do |made|
      forked(made)
      said = assert_fresh(made, env: { "SAID" => "1" })
      assert_equal "booted, since no template has the same variable SAID", said.how
      said = assert_fresh(made, env: { "SHLVL" => "99", "OLDPWD" => "/" })
      assert_predicate said, :forked?, said.how
    end
  end

  # A fork would keep the attributes of its template.
  def test_what_a_command_inherits_is_named_that_differs
    with_said do |made|
      forked(made)
      { "ionice -c3" => "I/O priority", "chrt --batch 0" => "scheduling policy",
        "choom -n 300 --" => "OOM score adjustment", "setarch -R" => "personality" }
        .each do |start, name|
        command = [*start.split, THRUWAY, "run", "--preload", "--explain", "--",
                   "bin/rails", "runner", CODE]
        said = made.plain(*command)
        assert_includes said.err, "booted, since no template has the same #{name}\n"
      end
    end
  end

  # The application is loaded under the variables that the command has set before.
  def test_an_environment_that_an_argument_chooses
    application do |made|
      made.write("config/initializers/said.rb", "ENV['BY_BOOT'] = ENV['RAILS_ENV']")
      File.write(made.path("config/application.rb"), "FIRST = ENV['RAILS_ENV']\n", mode: "a")
      code = "p FIRST, ENV['RAILS_ENV'], ENV['BY_BOOT']"
      made.forked("bin/rails", "runner", code)
      words = ["bin/rails", "runner", "-e", "production", code]
      said = made.preloaded(*words)
      assert_said made.plain(*words), said
      refute_predicate said, :forked?
      assert_said made.plain(*words), made.forked(*words)
    end
  end

  # The command may have set a variable that its template lacked.
  def test_a_command_that_sets_a_variable_of_its_own
    application do |made|
      made.write("config/initializers/said.rb", "SAID = ENV['SAID'].inspect")
      made.write("Rakefile", <<~RUBY)
        ENV["SAID"] = "chosen" if ENV["COLUMNS"] == "7"
        require_relative "config/application"
        task(:environment) { require_relative "config/environment" }
        task(said: :environment) { puts SAID }
      RUBY
      assert_said made.plain("rake", "said"), made.forked("rake", "said")
      seven = { "COLUMNS" => "7" }
      said = made.preloaded("rake", "said", env: seven)
      assert_said made.plain("rake", "said", env: seven), said
      assert_equal %("chosen"\n), said.out
    end
  end

  def test_a_link_that_leads_nowhere_leaves_the_template
    with_said do |made|
      FileUtils.ln_s("missing.txt", made.path("lib/extra.txt"))
      sleep 0.04
      2.times { assert_said made.plain("bin/rails", "runner", CODE), forked(made) }
      made.write("lib/missing.txt", "")
      refute_predicate assert_fresh(made), :forked?
    end
  end

  def test_files_that_are_named_or_left_out
    application do |made|
      made.write("config/initializers/said.rb", <<~RUBY)
        require #{LIBRARY.dump}
        Thruway::Preload.exclude "lib/noise.txt"
        File.read("lib/noise.txt")
      RUBY
      made.write("lib/noise.txt", "1")
      made.write("lib/native.bin", "1")
      sleep 0.04
      words = ["bin/rails", "runner", "puts File.read('lib/noise.txt')"]
      env = { "THRUWAY_PRELOAD_FILES" => "lib/native.bin" }
      made.forked(*words, env: env)
      made.write("lib/noise.txt", "2")
      said = made.preloaded(*words, env: env)
      assert_equal [true, "2\n"], [said.forked?, said.out], said.how
      made.write("lib/native.bin", "2")
      assert_match(/native.bin has changed$/, made.preloaded(*words, env: env).how)
    end
  end

  LIBRARY = File.expand_path("../../lib/thruway/preload", __dir__)

  def test_a_boot_that_looks_at_its_arguments
    application do |made|
      made.write("config/initializers/said.rb", "SAID = ARGV.last")
      words = ->(last) { ["bin/rails", "runner", "puts SAID", last] }
      2.times { assert_said made.plain(*words["a"]), made.forked(*words["a"]) }
      said = made.preloaded(*words["b"])
      assert_said made.plain(*words["b"]), said
      assert_includes said.how, "the application reads its arguments as it boots"
    end
  end

  # Ruby takes their elements without a call.
  def test_a_boot_that_takes_its_arguments_apart
    ["_, *SAID = ARGV", "SAID = [*ARGV]", "SAID = %w[a b] & ARGV",
     "require 'optparse'; SAID = OptionParser.new.parse(ARGV)"].each do |code|
      application do |made|
        made.write("config/initializers/said.rb", code)
        words = ->(last) { ["bin/rails", "runner", "p SAID", last] }
        2.times { assert_said made.plain(*words["a"]), made.forked(*words["a"]), code }
        assert_said made.plain(*words["b"]), made.preloaded(*words["b"]), code
      end
    end
  end

  def test_a_boot_that_keeps_its_arguments_and_does_not_look_at_them
    application do |made|
      made.write("config/initializers/said.rb", "KEPT = ARGV\nrequire 'optparse'\n")
      words = ->(last) { ["bin/rails", "runner", "p KEPT, ARGV.getopts('a')", last] }
      %w[a -a b].each { |last| assert_said made.plain(*words[last]), made.forked(*words[last]) }
    end
  end

  def test_scripts_behind_an_option_with_a_value
    application do |made|
      %w[a b].each do |name|
        made.write("#{name}.rb", "require_relative 'config/application'\np $0, ARGV\n")
      end
      words = ->(name) { ["ruby", "--disable", "did_you_mean", "#{name}.rb", name] }
      %w[a b].each { |name| assert_said made.plain(*words[name]), made.forked(*words[name]) }
    end
  end

  def test_a_command_with_a_space_that_is_started_again
    application do |made|
      # The folder is not listed as the template boots.
      FileUtils.mkdir_p(made.path("my bin"))
      made.write("my bin/t", "#!/usr/bin/env ruby\nENV['X'] = File.read('tmp/known')\n" \
                             "require_relative '../config/environment'\np ENV['X']\n")
      File.chmod(0o755, made.path("my bin/t"))
      words = [made.path("my bin/t")]
      made.forked(*words)
      File.write(made.path("tmp/known"), "other")
      assert_equal "\"other\"\n", made.preloaded(*words).out
    end
  end

  def test_a_link_to_a_script_leads_elsewhere
    application do |made|
      %w[one two].each do |name|
        made.write("#{name}/config/application.rb", "NAME = #{name.inspect}\n")
        made.write("#{name}/run.rb", "require_relative 'config/application'\nputs NAME\n")
      end
      %w[one two].each do |name|
        File.delete(made.path("current")) if File.symlink?(made.path("current"))
        File.symlink(name, made.path("current"))
        words = ["ruby", "../current/run.rb"]
        folder = { chdir: made.path("lib") }
        assert_said made.plain(*words, **folder), made.forked(*words, **folder)
      end
    end
  end

  def test_what_the_boot_said_is_said_again
    application do |made|
      said = "puts 'out'; warn 'err'; $stdout.flush; $stderr.puts 'more'"
      made.write("config/initializers/said.rb", said)
      words = ["bin/rails", "runner", "puts 'own'"]
      plain = made.plain(*words)
      2.times { assert_said plain, made.forked(*words) }
    end
  end

  # The boot ends with unwritten output. A fork would write it to the template's stream.
  def test_what_the_boot_has_not_flushed_is_said_again
    application do |made|
      made.write("config/initializers/said.rb", "puts 'out'; warn 'err'; print 'half'")
      words = ["bin/rails", "runner", "warn 'more'; puts ' of it'"]
      plain = made.plain(*words)
      assert_equal "out\nhalf of it\n", plain.out
      2.times { assert_said plain, made.forked(*words) }
    end
  end

  # A command that does not request the application prints none of the boot's output.
  def test_what_the_boot_says_comes_when_the_command_asks_for_the_application
    application do |made|
      made.write("config/initializers/said.rb", "puts 'out'; $stdout.flush; print 'half'")
      made.write("asks.rb", <<~RUBY)
        puts "first"
        require_relative "config/environment" if ARGV.empty?
        puts "last"
      RUBY
      plain = made.plain("ruby", "asks.rb")
      assert_equal "first\nout\nhalflast\n", plain.out
      2.times { assert_said plain, made.forked("ruby", "asks.rb") }
      assert_said made.plain("ruby", "asks.rb", "no"), made.forked("ruby", "asks.rb", "no")
    end
  end

  # Random edits between commands: a preloaded run prints the same as a plain one.
  def test_random_edits
    random = Random.new(Integer(ENV.fetch("THRUWAY_SEED", "1")))
    with_said do |made|
      Integer(ENV.fetch("THRUWAY_CASES", "8")).times do |number|
        forked(made) if random.rand(2).zero?
        edit = EDITS.keys[random.rand(EDITS.size)]
        instance_exec(made, number, &EDITS.fetch(edit))
        said = assert_fresh(made)
        assert_predicate said.status, :success?, "#{edit}: #{said}"
      end
    end
  end

  EDITS = {
    model: lambda do |made, n|
      made.write("app/models/said.rb", "class Said; def text = 'model #{n}'; end")
    end,
    yaml: ->(made, n) { made.write("config/said.yml", "text: yaml #{n}\n") },
    text: ->(made, n) { made.write("lib/said.txt", "text #{n}") },
    locale: ->(made, n) { made.write("config/locales/en.yml", "en:\n  said: locale #{n}\n") },
    add: ->(made, n) { made.write("lib/extra#{n % 3}.txt", "") },
    remove: ->(made, n) { FileUtils.rm_f(made.path("lib/extra#{n % 3}.txt")) },
    there: ->(made, _) { made.write("lib/extra.txt", "") },
    away: ->(made, _) { FileUtils.rm_f(made.path("lib/extra.txt")) },
    folder: lambda do |made, _|
      FileUtils.mv(made.path("lib"), made.path("moved"))
      FileUtils.cp_r(made.path("moved"), made.path("lib"))
      FileUtils.rm_rf(made.path("moved"))
    end,
    link: lambda do |made, n|
      made.write("kept/#{n}.txt", "link #{n}")
      FileUtils.rm_f(made.path("lib/said.txt"))
      File.symlink("../kept/#{n}.txt", made.path("lib/said.txt"))
    end,
    same_size_and_time: lambda do |made, n|
      path = made.path("lib/said.txt")
      time = File.mtime(path)
      File.write(path, (n % 10).to_s * File.size(path))
      File.utime(time, time, path)
    end
  }.freeze
end
